"""The few requests that the manager makes to the API server, as the cluster's administrator. Standard library only."""

from __future__ import annotations

import http.client
import json
import ssl
from dataclasses import dataclass
from typing import Any

from tools.cluster.errors import ClusterError
from tools.cluster.layout import Layout


class ApiError(ClusterError):
    """The API server answered with an error status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Api:
    """`host:port` as the anchor published it. Each request is a connection of its own."""

    layout: Layout
    endpoint: str
    user: str = "admin"

    def request(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json", seconds: float = 10
    ) -> Any:
        """Sends a request; returns the decoded JSON, or the text of other answers. Raises ApiError, OSError."""
        pki = self.layout.pki
        context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        context.load_cert_chain(pki / f"{self.user}.crt", pki / f"{self.user}.key")
        host, _, port = self.endpoint.rpartition(":")
        connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=seconds)
        try:
            headers = {"Accept": "application/json", "Content-Type": content_type}
            connection.request(method, path, body=None if body is None else json.dumps(body), headers=headers)
            response = connection.getresponse()
            content = response.read().decode()
        except http.client.HTTPException as error:
            raise OSError(f"{method} {path}: {error!r}") from error
        finally:
            connection.close()
        try:
            answer = json.loads(content)
        except ValueError:
            answer = content
        if response.status >= 300:
            message = answer.get("message", content) if isinstance(answer, dict) else content
            raise ApiError(response.status, f"{method} {path}: {response.status} {message}")
        return answer

    def get(self, path: str) -> Any:
        """The object at path, or None where there is none."""
        try:
            return self.request("GET", path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def apply(self, path: str, manifest: dict[str, Any]) -> Any:
        """Server-side apply as the cluster's owner."""
        return self.request(
            "PATCH", f"{path}?fieldManager=cluster-owner&force=true", manifest, content_type="application/apply-patch+yaml"
        )

    def merge(self, path: str, patch: dict[str, Any]) -> Any:
        return self.request("PATCH", f"{path}?fieldManager=cluster-owner", patch, content_type="application/merge-patch+json")

    def ready(self) -> bool:
        try:
            return self.request("GET", "/readyz", seconds=2) == "ok"
        except (OSError, ClusterError):
            return False
