"""A read-mostly client of the Kubernetes API over a kubeconfig, with the standard library alone."""

from __future__ import annotations

import copy
import http.client
import json
import ssl
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from infra.diagnosis import Diagnosis
from infra.errors import MissingError
from infra.observe.credentials import Credentials
from infra.observe.kubeconfig import Kubeconfig, as_kubectl_writes_it, parse_kubeconfig, read_kubeconfig
from infra.observe.transport import Answer, NotSentError, Transport

LOOK_PATIENCE_SECONDS = 5  # one look gives up soon: a mistyped address is the usual cause
WAIT_PATIENCE_SECONDS = 300  # whoever waits for a rollout bears an API server that restarts, or a network that is gone for a while
_PAGE = 500  # objects a list request; the API server pages by `continue`
_PASSING = (429, 500, 502, 503, 504)
_UNHANDLED = (429, 503)  # answered before anything was done: also a POST may be sent again


class ApiError(MissingError):
    """An answer of the API server that is no success; `status` is the HTTP status."""

    def __init__(self, status: int, message: str, *, retry_after_seconds: float = 0) -> None:
        super().__init__([Diagnosis("connection", "ApiError", f"the API server answers {status}: {message}")])
        self.status, self.message, self.retry_after_seconds = status, message, retry_after_seconds

    def __str__(self) -> str:
        return self.message


class LostError(MissingError):
    """No answer came. `passing`: it may come on another try; `sent`: the API server may have acted on the request."""

    def __init__(self, message: str, *, passing: bool, sent: bool) -> None:
        super().__init__([Diagnosis("connection", "ClusterUnreachable", message)])
        self.passing, self.sent = passing, sent


class Client:
    """Talks to the cluster of one kubeconfig context; credentials are renewed at their end and when they are refused.

    A request that fails in a way that may pass (no answer, 429, 5xx) is tried again for `patience_seconds`.
    """

    def __init__(
        self,
        kubeconfig: Path | Kubeconfig,
        context: str | None = None,
        *,
        timeout_seconds: float = 30,
        patience_seconds: float = LOOK_PATIENCE_SECONDS,
    ) -> None:
        source = kubeconfig.source if isinstance(kubeconfig, Kubeconfig) else str(kubeconfig)
        self.patience_seconds = patience_seconds
        with as_kubectl_writes_it(source):
            config = kubeconfig if isinstance(kubeconfig, Kubeconfig) else read_kubeconfig(kubeconfig, context)
            self._transport = Transport(config, timeout_seconds=timeout_seconds)
            self._credentials = Credentials(config)
            self._transport.context(self._credentials.pair())

    @classmethod
    def of_output(cls, content: Any, context: str | None, *, source: str) -> Client:
        """From a kubeconfig that another stack exports: its text, or the document itself."""
        return cls(parse_kubeconfig(content, context, folder=Path.cwd(), source=source))

    @property
    def server(self) -> str:
        return self._transport.server

    def patient(self, seconds: float = WAIT_PATIENCE_SECONDS) -> Client:
        """The same client with another patience."""
        other = copy.copy(self)
        other.patience_seconds = seconds
        return other

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> Any:
        """One call; the answer's JSON, or its text where it is none (logs). ApiError where the server refuses, LostError where none answers."""
        target = path + (f"?{urlencode(query)}" if query else "")
        data = None if body is None else json.dumps(body).encode()
        started, pauses, renewed, repeated = time.monotonic(), growing_pauses(), False, False
        while True:
            began = time.time()
            try:
                return self._once(method, target, data, content_type)
            except MissingError as error:
                if repeated and method == "DELETE" and isinstance(error, ApiError) and error.status == 404:
                    return {}  # the first try was acted on, though its answer was lost
                if isinstance(error, ApiError) and error.status == 401 and not renewed:
                    renewed = True
                    if self._renew(began):
                        continue
                pause = max(next(pauses), getattr(error, "retry_after_seconds", 0))
                if not _may_pass(error, method) or time.monotonic() + pause - started > self.patience_seconds:
                    raise
                time.sleep(pause)
                repeated = True

    def _renew(self, refused: float) -> bool:
        try:
            return self._credentials.renew(refused)
        except MissingError:
            return False  # the refusal itself is what is told; the next try runs the plugin again

    def _once(self, method: str, target: str, data: bytes | None, content_type: str) -> Any:
        try:
            headers = [("Accept", "application/json"), ("User-Agent", "numawise"), *self._credentials.headers()]
            headers += [("Content-Type", content_type)] if data is not None else []
            answer = self._transport.exchange(method, target, headers=headers, body=data, pair=self._credentials.pair())
            if answer.status >= 300:
                raise _refusal(answer)
            if "json" in answer.headers.get("content-type", ""):
                return json.loads(answer.body)
            return answer.body.decode(errors="replace")
        except (OSError, http.client.HTTPException, ValueError) as error:
            passing = not isinstance(error, ssl.SSLCertVerificationError)
            why = str(error) or type(error).__name__
            message = f"{self.server} does not answer: {why}; check the address, the network and `kubectl cluster-info`"
            raise LostError(message, passing=passing, sent=not isinstance(error, NotSentError)) from None

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
            if not isinstance(page, Mapping):
                raise ApiError(200, f"{path} answers text, no list; is {self.server} an API server?")
            yield from page.get("items") or ()
            token = (page.get("metadata") or {}).get("continue", "")
            if not token:
                return


def growing_pauses() -> Iterator[float]:
    """Seconds between two looks at something that takes a while: 2, growing to 15."""
    pause = 2.0
    while True:
        yield pause
        pause = min(15.0, pause * 1.5)


def _may_pass(error: MissingError, method: str) -> bool:
    """Whether the same request may succeed later, and does no harm if the first one was acted on after all."""
    if isinstance(error, LostError):
        return error.passing and (method != "POST" or not error.sent)
    if isinstance(error, ApiError):
        # A server without its store, or without the webhook that knows our token, refuses valid credentials for a while.
        return error.status in (*_UNHANDLED, 401) or (method != "POST" and error.status in _PASSING)
    return True  # a credential plugin that failed: it may have met the same network


def _refusal(answer: Answer) -> ApiError:
    try:
        message = str(json.loads(answer.body)["message"])
    except (ValueError, KeyError, TypeError):
        message = f"HTTP status {answer.status}"
        if location := answer.headers.get("location"):
            message += f", see {location}; give the API server's own address"
    if answer.status == 401:
        message += "; the credentials of the kubeconfig are refused, log in again or renew them (`kubectl auth whoami` has to work)"
    try:
        wait = float(answer.headers.get("retry-after", 0))
    except ValueError:
        wait = 0
    return ApiError(answer.status, message, retry_after_seconds=wait)
