"""A read-mostly client of the Kubernetes API over a kubeconfig, with the standard library alone."""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from infra.errors import MissingError

_PAGE = 500  # objects a list request; the API server pages by `continue`


class ApiError(Exception):
    """An answer of the API server that is no success; `status` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Client:
    """Talks to the cluster of one kubeconfig context. Exec credential plugins are run as kubectl would."""

    def __init__(self, kubeconfig: Path, context: str | None = None, *, timeout_seconds: float = 30) -> None:
        try:
            self._configure(kubeconfig, context, timeout_seconds)
        except (TypeError, ValueError, AttributeError, KeyError, OSError) as error:
            # The values may be secrets: only the kind of the error is told.
            message = f"{kubeconfig} is not as kubectl writes it ({type(error).__name__}); compare it with `kubectl config view`"
            raise MissingError.one("KubeconfigUnreadable", "connection.kubeconfig", message) from None

    def _configure(self, kubeconfig: Path, context: str | None, timeout_seconds: float) -> None:
        document = _read_kubeconfig(kubeconfig)
        name = context or document.get("current-context")
        if not name:
            raise MissingError.one(
                "NoContext",
                "connection.context",
                f"is not given, and {kubeconfig} has no current-context; contexts: {_names(document, 'contexts')}",
            )
        chosen = _named(document, "contexts", name, "context", kubeconfig)
        cluster = _named(document, "clusters", chosen.get("cluster", ""), "cluster", kubeconfig)
        user = _named(document, "users", chosen.get("user", ""), "user", kubeconfig) if chosen.get("user") else {}
        folder = kubeconfig.parent
        self.server: str = str(cluster.get("server", "")).rstrip("/")
        if not self.server.startswith(("https://", "http://")):
            raise MissingError.one(
                "KubeconfigUnreadable",
                "connection.kubeconfig",
                f"{kubeconfig}: the server {self.server!r} of context {name} is no address; write it like https://10.0.0.1:6443",
            )
        self._timeout = timeout_seconds
        self._headers: dict[str, str] = {"Accept": "application/json", "User-Agent": "numawise"}
        self._ssl = _tls(cluster, folder)
        credentials = _exec_credentials(user["exec"], folder) if "exec" in user else user
        self._authenticate(credentials, folder)

    def _authenticate(self, user: Mapping[str, Any], folder: Path) -> None:
        token = user.get("token") or (user.get("tokenFile") and _file(user["tokenFile"], folder).read_text().strip())
        if token and not (isinstance(token, str) and token.isprintable()):
            raise ValueError("the token holds characters that no HTTP header can")
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        elif user.get("username"):
            basic = base64.b64encode(f"{user['username']}:{user.get('password', '')}".encode()).decode()
            self._headers["Authorization"] = f"Basic {basic}"
        certificate = _inline_or_file(user, "client-certificate", folder)
        key = _inline_or_file(user, "client-key", folder)
        if certificate and key:
            # The ssl module takes certificates from files only; the key lies on disk for this moment, readable by us alone.
            with tempfile.TemporaryDirectory() as temporary:
                pair = Path(temporary, "pair.pem")
                pair.touch(mode=0o600)
                pair.write_bytes(certificate + b"\n" + key)
                self._ssl.load_cert_chain(pair)

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> Any:
        """One call; the answer's JSON, or its text where it is none (logs). ApiError where the server refuses."""
        url = f"{self.server}{path}" + (f"?{urllib.parse.urlencode(query)}" if query else "")
        data = None if body is None else json.dumps(body).encode()
        headers = self._headers | ({"Content-Type": content_type} if data is not None else {})
        request = urllib.request.Request(url, data=data, headers=headers, method=method)
        opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=self._ssl))
        try:
            with opener.open(request, timeout=self._timeout) as answer:
                text = answer.read()
                return json.loads(text) if "json" in answer.headers.get("Content-Type", "") else text.decode(errors="replace")
        except urllib.error.HTTPError as error:
            raise ApiError(error.code, _status_message(error)) from None
        except (urllib.error.URLError, TimeoutError, OSError) as error:
            reason = getattr(error, "reason", error)
            raise MissingError.one(
                "ClusterUnreachable",
                "connection",
                f"{self.server} does not answer: {reason}; check the address, the network and `kubectl cluster-info`",
            ) from None

    def get(self, path: str, *, query: Mapping[str, str] | None = None) -> Any:
        return self.request("GET", path, query=query)

    def find(self, path: str) -> Any | None:
        """The object, or None where there is none."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def list(self, path: str, *, query: Mapping[str, str] | None = None) -> Iterator[dict[str, Any]]:
        """All objects of a collection, page by page."""
        token = ""
        while True:
            page = self.get(path, query={**(query or {}), "limit": str(_PAGE)} | ({"continue": token} if token else {}))
            yield from page.get("items") or ()
            token = (page.get("metadata") or {}).get("continue", "")
            if not token:
                return


def _read_kubeconfig(path: Path) -> dict[str, Any]:
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    except FileNotFoundError:
        raise MissingError.one(
            "NoKubeconfig",
            "connection.kubeconfig",
            f"there is no file {path}; give the path of your cluster's kubeconfig (for stack local, run `make up`)",
        ) from None
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise MissingError.one("KubeconfigUnreadable", "connection.kubeconfig", f"{path} cannot be read: {error}") from None
    if not isinstance(document, dict):
        raise MissingError.one("KubeconfigUnreadable", "connection.kubeconfig", f"{path} is no kubeconfig")
    return document


def _names(document: Mapping[str, Any], kind: str) -> str:
    return ", ".join(entry.get("name", "?") for entry in document.get(kind) or ()) or "none"


def _named(document: Mapping[str, Any], kind: str, name: str, key: str, path: Path) -> dict[str, Any]:
    for entry in document.get(kind) or ():
        if entry.get("name") == name:
            return entry.get(key) or {}
    raise MissingError.one("NoContext", "connection.context", f"{path} has no {key} {name!r}; it has: {_names(document, kind)}")


def _file(name: str, folder: Path) -> Path:
    return folder / Path(name).expanduser()


def _inline_or_file(section: Mapping[str, Any], key: str, folder: Path) -> bytes | None:
    if section.get(f"{key}-data"):
        return base64.b64decode(section[f"{key}-data"])
    if section.get(key):
        return _file(section[key], folder).read_bytes()
    return None


def _tls(cluster: Mapping[str, Any], folder: Path) -> ssl.SSLContext:
    authority = _inline_or_file(cluster, "certificate-authority", folder)
    context = ssl.create_default_context(cadata=authority.decode() if authority else None)
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _exec_credentials(plugin: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    command = [plugin["command"], *(plugin.get("args") or ())]
    extra = {entry["name"]: entry["value"] for entry in plugin.get("env") or ()}
    extra["KUBERNETES_EXEC_INFO"] = json.dumps(
        {"apiVersion": plugin.get("apiVersion"), "kind": "ExecCredential", "spec": {"interactive": False}}
    )
    try:
        done = subprocess.run(
            command, env={**os.environ, **extra}, capture_output=True, text=True, timeout=60, cwd=folder, check=False
        )
        status = json.loads(done.stdout)["status"] if done.returncode == 0 else None
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError) as error:
        raise MissingError.one(
            "NoCredentials", "connection.kubeconfig", f"its credential plugin {command[0]} failed: {error}"
        ) from None
    if status is None:
        raise MissingError.one(
            "NoCredentials",
            "connection.kubeconfig",
            f"its credential plugin {command[0]} ended with {done.returncode}: {done.stderr.strip()[-300:]}",
        )
    encoded = {
        key: base64.b64encode(status[field].encode()).decode()
        for key, field in (("client-certificate-data", "clientCertificateData"), ("client-key-data", "clientKeyData"))
        if status.get(field)
    }
    return {"token": status.get("token"), **encoded}


def _status_message(error: urllib.error.HTTPError) -> str:
    try:
        return json.loads(error.read())["message"]
    except (ValueError, KeyError, TypeError, OSError):
        return f"HTTP status {error.code}"
