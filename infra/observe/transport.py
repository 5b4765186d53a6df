"""One HTTP request to an API server: TLS as a kubeconfig wants it, and the way through a proxy."""

from __future__ import annotations

import base64
import http.client
import ipaddress
import os
import socket
import ssl
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment  # pyright: ignore[reportAttributeAccessIssue]

from infra.errors import MissingError
from infra.observe.kubeconfig import Kubeconfig, inline_or_file

_PROXY_PORTS = {"http": 80, "socks5": 1080, "socks5h": 1080}
_SOCKS_REPLIES = {1: "failed", 2: "not allowed", 3: "network unreachable", 4: "host unreachable", 5: "connection refused"}


class NotSentError(OSError):
    """The connection was not made: the API server has seen nothing of the request."""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport:
    """Opens one connection a request to the cluster of a kubeconfig. OSError and HTTPException where it fails."""

    def __init__(self, config: Kubeconfig, *, timeout_seconds: float) -> None:
        self.server = str(config.cluster.get("server", "")).rstrip("/")
        self._url = urlsplit(self.server)
        if self._url.scheme not in ("http", "https") or not self._url.hostname:
            raise MissingError.one(
                "KubeconfigUnreadable",
                "connection.kubeconfig",
                f"{config.source}: the server {self.server!r} of context {config.context} is no address; write it like https://10.0.0.1:6443",
            )
        self._port = self._url.port or (443 if self._url.scheme == "https" else 80)
        self._timeout = timeout_seconds
        self._config = config
        self._proxy = _proxy_of(self._url, config.cluster.get("proxy-url"), os.environ)
        self._lock = threading.Lock()
        self._contexts: dict[tuple[bytes | None, tuple[bytes, bytes] | None], ssl.SSLContext] = {}

    def context(self, pair: tuple[bytes, bytes] | None) -> ssl.SSLContext:
        """TLS with the authority as its file is now, and our own certificate."""
        authority = inline_or_file(self._config.cluster, "certificate-authority", self._config.folder)
        with self._lock:
            if (authority, pair) not in self._contexts:
                self._contexts = {
                    (authority, pair): _tls(authority, pair, bool(self._config.cluster.get("insecure-skip-tls-verify")))
                }
            return self._contexts[authority, pair]

    def exchange(
        self, method: str, target: str, *, headers: Sequence[tuple[str, str]], body: bytes | None, pair: tuple[bytes, bytes] | None
    ) -> Answer:
        """One request and its whole answer. NotSentError where no connection came about."""
        host = str(self._url.hostname)
        connection = http.client.HTTPConnection(host, self._port, timeout=self._timeout)
        try:
            try:
                connection.sock = self._connect(host, pair)
            except ssl.SSLCertVerificationError:
                raise
            except OSError as error:
                raise NotSentError(str(error)) from error
            default = 443 if self._url.scheme == "https" else 80
            literal = f"[{host}]" if ":" in host else host
            connection.putrequest(method, self._url.path.rstrip("/") + target, skip_host=True)
            connection.putheader("Host", literal if self._port == default else f"{literal}:{self._port}")
            for name, value in headers:
                connection.putheader(name, value.encode("utf-8"))
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def _connect(self, host: str, pair: tuple[bytes, bytes] | None) -> socket.socket:
        raw = _through(self._proxy, host, self._port, self._timeout)
        if self._url.scheme == "http":
            return raw
        try:
            return self.context(pair).wrap_socket(raw, server_hostname=self._config.cluster.get("tls-server-name") or host)
        except BaseException:
            raw.close()
            raise


def _tls(authority: bytes | None, pair: tuple[bytes, bytes] | None, insecure: bool) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.decode() if authority else None)
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if pair is not None:
        # The ssl module takes certificates from files only; the key lies on disk for this moment, readable by us alone.
        with tempfile.TemporaryDirectory() as temporary:
            path = Path(temporary, "pair.pem")
            path.touch(mode=0o600)
            path.write_bytes(b"\n".join(pair))
            context.load_cert_chain(path)
    return context


def _proxy_of(url: SplitResult, given: Any, environment: Mapping[str, str]) -> SplitResult | None:
    """The proxy of the kubeconfig; else that of the environment, which this machine itself and NO_PROXY (names, suffixes, networks) are exempt from."""
    text = given
    if not text:
        host = str(url.hostname)
        text = getproxies_environment().get(url.scheme)
        if not text or _is_exempt(host, environment.get("no_proxy") or environment.get("NO_PROXY") or ""):
            return None
    proxy = urlsplit(text if "://" in text else f"http://{text}")
    if proxy.scheme not in _PROXY_PORTS or not proxy.hostname:
        where = "proxy-url" if given else f"the {url.scheme.upper()}_PROXY of the environment"
        raise MissingError.one(
            "ProxyUnsupported",
            "connection.kubeconfig",
            f"{where} has the scheme {proxy.scheme!r}, and proxies are spoken to by {', '.join(_PROXY_PORTS)}; give such an address",
        )
    return proxy


def _is_exempt(host: str, exceptions: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost" or bool(proxy_bypass_environment(host))
    for entry in exceptions.split(","):
        try:
            if address in ipaddress.ip_network(entry.strip(), strict=False):
                return True
        except ValueError:
            continue
    return address.is_loopback or bool(proxy_bypass_environment(host))


def _through(proxy: SplitResult | None, host: str, port: int, timeout: float) -> socket.socket:
    if proxy is None:
        return socket.create_connection((host, port), timeout)
    opened = socket.create_connection((str(proxy.hostname), proxy.port or _PROXY_PORTS[proxy.scheme]), timeout)
    try:
        if proxy.scheme == "http":
            _tunnel(opened, proxy, host, port)
        else:
            _socks(opened, proxy, host, port)
    except BaseException:
        opened.close()
        raise
    return opened


def _tunnel(opened: socket.socket, proxy: SplitResult, host: str, port: int) -> None:
    """HTTP CONNECT (RFC 9110, section 9.3.6)."""
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if proxy.username:
        basic = base64.b64encode(f"{unquote(proxy.username)}:{unquote(proxy.password or '')}".encode()).decode()
        lines.append(f"Proxy-Authorization: Basic {basic}")
    opened.sendall("\r\n".join([*lines, "", ""]).encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = opened.recv(1)  # nothing of what comes after the head may be taken
        if not byte or len(head) > 65536:
            raise ConnectionError(f"the proxy {proxy.hostname} ended the connection")
        head += byte
    status = head.split(b"\r\n", 1)[0].decode(errors="replace").split(" ", 2)
    if len(status) < 2 or not status[1].startswith("2"):
        raise ConnectionError(f"the proxy {proxy.hostname} refuses {target}: {' '.join(status[1:])}")


def _socks(opened: socket.socket, proxy: SplitResult, host: str, port: int) -> None:
    """SOCKS 5 (RFC 1928) with user and password where the URL has them (RFC 1929); the proxy resolves the name."""
    opened.sendall(b"\x05\x02\x00\x02" if proxy.username else b"\x05\x01\x00")
    version, method = _exactly(opened, 2)
    if version == 5 and method == 2 and proxy.username:
        user, password = unquote(proxy.username).encode(), unquote(proxy.password or "").encode()
        opened.sendall(b"\x01" + bytes([len(user)]) + user + bytes([len(password)]) + password)
        if _exactly(opened, 2)[1] != 0:
            raise ConnectionError(f"the proxy {proxy.hostname} refuses its user's password")
    elif version != 5 or method != 0:
        raise ConnectionError(f"the proxy {proxy.hostname} accepts none of our ways to log in")
    try:
        address = ipaddress.ip_address(host)
        destination = (b"\x01" if address.version == 4 else b"\x04") + address.packed
    except ValueError:
        name = host.encode("idna")
        destination = b"\x03" + bytes([len(name)]) + name
    opened.sendall(b"\x05\x01\x00" + destination + port.to_bytes(2, "big"))
    _, reply, _, kind = _exactly(opened, 4)
    if reply != 0:
        raise ConnectionError(f"the proxy {proxy.hostname} cannot reach {host}:{port}: {_SOCKS_REPLIES.get(reply, reply)}")
    length = {1: 4, 4: 16}.get(kind) or _exactly(opened, 1)[0]
    _exactly(opened, length + 2)


def _exactly(opened: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = opened.recv(count - len(data))
        if not part:
            raise ConnectionError("the proxy ended the connection")
        data += part
    return data
