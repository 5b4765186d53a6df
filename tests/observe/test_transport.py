"""The way to the API server: the name that its certificate is checked for, and proxies."""

from __future__ import annotations

import shutil
import socket
import socketserver
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from infra.errors import MissingError
from infra.observe.client import Client
from infra.observe.transport import _proxy_of
from tests.observe.test_client import kubeconfig
from tests.observe.test_patience import served


def client(folder: Path, **cluster: Any) -> Client:
    path = kubeconfig(folder, "", {}, clusters=[{"name": "c", "cluster": cluster}])
    return Client(path, patience_seconds=0)


class _Proxy(socketserver.BaseRequestHandler):
    """CONNECT and SOCKS 5 on one port; `seen` are the targets, as the client named them."""

    seen: list[str]
    password: bytes

    def handle(self) -> None:
        first = self.request.recv(1)
        target = self._socks() if first == b"\x05" else self._connect(first)
        if target is None:
            return
        host, port = target
        with socket.create_connection(("127.0.0.1" if host == "api.internal" else host, port)) as upstream:
            threading.Thread(target=_copy, args=(upstream, self.request), daemon=True).start()
            _copy(self.request, upstream)

    def _connect(self, head: bytes) -> tuple[str, int] | None:
        while not head.endswith(b"\r\n\r\n"):
            head += self.request.recv(1)
        self.seen.append(head.decode())
        if self.password and self.password not in head:
            self.request.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
            return None
        host, port = head.split(b" ")[1].decode().rsplit(":", 1)
        self.request.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        return host, int(port)

    def _socks(self) -> tuple[str, int]:
        self.request.recv(1 + self.request.recv(1)[0])
        self.request.sendall(b"\x05\x00")
        kind = self.request.recv(4)[3]
        host = self.request.recv(self.request.recv(1)[0]).decode() if kind == 3 else socket.inet_ntoa(self.request.recv(4))
        port = int.from_bytes(self.request.recv(2), "big")
        self.seen.append(f"socks {host}")
        self.request.sendall(b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00")
        return host, port


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
    except OSError:
        pass


@contextmanager
def proxied(password: bytes = b"") -> Iterator[tuple[int, list[str]]]:
    seen: list[str] = []
    handler = type("Handler", (_Proxy,), {"seen": seen, "password": password})
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as proxy:
        proxy.daemon_threads = True
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        yield proxy.server_address[1], seen
        proxy.shutdown()


def test_an_http_proxy_of_the_kubeconfig_is_gone_through_also_to_this_machine(tmp_path: Path) -> None:
    with served() as api, proxied() as (port, seen):
        assert client(tmp_path, server=api.url, **{"proxy-url": f"http://127.0.0.1:{port}"}).get("/a")["items"] == []
    assert seen[0].startswith(f"CONNECT {api.url.removeprefix('http://')} HTTP/1.1\r\n")


def test_a_proxys_password_is_sent_and_its_refusal_told(tmp_path: Path) -> None:
    with served() as api, proxied(password=b"bWU6cGEgc3M=") as (port, _):  # me:pa ss
        assert client(tmp_path, server=api.url, **{"proxy-url": f"http://me:pa%20ss@127.0.0.1:{port}"}).get("/a")["items"] == []
        with pytest.raises(MissingError, match=r"refuses .*: 407 Proxy Authentication Required"):
            client(tmp_path, server=api.url, **{"proxy-url": f"http://127.0.0.1:{port}"}).get("/a")


@pytest.mark.parametrize("host", ["127.0.0.1", "api.internal"])
def test_a_socks_proxy_resolves_the_servers_name(tmp_path: Path, host: str) -> None:
    with served() as api, proxied() as (port, seen):
        server = api.url.replace("127.0.0.1", host)
        assert client(tmp_path, server=server, **{"proxy-url": f"socks5://127.0.0.1:{port}"}).get("/a")["items"] == []
    assert seen == [f"socks {host}"]


@pytest.mark.parametrize("proxy", ["https://127.0.0.1:3128", "ftp://127.0.0.1", "socks4://127.0.0.1:1080"])
def test_a_proxy_that_cannot_be_spoken_to_is_told_with_the_ways_that_can(tmp_path: Path, proxy: str) -> None:
    with pytest.raises(MissingError, match="http, socks5"):
        client(tmp_path, server="https://10.0.0.1", **{"proxy-url": proxy})


@pytest.mark.parametrize(
    ("server", "exceptions", "used"),
    [
        ("https://api.example.com", "", True),
        ("https://api.example.com", "example.com", False),
        ("https://api.example.com", ".example.org,other", True),
        ("https://10.1.2.3:6443", "10.0.0.0/8", False),
        ("https://10.1.2.3:6443", "192.168.0.0/16, 10.1.2.3", False),
        ("https://10.1.2.3:6443", "10.2.0.0/16", True),
        ("https://[fd00::1]:6443", "fd00::/8", False),
        ("https://127.0.0.1:6443", "", False),
        ("https://localhost:6443", "", False),
        ("http://api.example.com", "", False),
    ],
)
def test_the_environments_proxy_is_used_but_for_its_exceptions(
    monkeypatch: pytest.MonkeyPatch, server: str, exceptions: str, used: bool
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    environment = {"HTTPS_PROXY": "proxy.example.com:3128", "NO_PROXY": exceptions}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = _proxy_of(urlsplit(server), None, environment)
    assert (found is not None and found.hostname == "proxy.example.com") is used


@pytest.fixture(scope="module")
def tls_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A server whose certificate is for kubernetes.internal alone; its address and the certificate."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate, and it is not on this machine")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=kubernetes.internal",
         "-addext", "subjectAltName=DNS:kubernetes.internal", "-keyout", "key", "-out", "crt"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    with served() as api:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(folder / "crt", folder / "key")
        api.server.socket = context.wrap_socket(api.server.socket, server_side=True)
        yield api.url.replace("http://", "https://"), folder / "crt"


def test_a_certificate_for_another_name_needs_tls_server_name(tls_server: tuple[str, Path], tmp_path: Path) -> None:
    server, authority = tls_server
    trusting = {"server": server, "certificate-authority": str(authority)}
    with pytest.raises(MissingError, match="certificate verify failed"):
        client(tmp_path, **trusting).patient().get("/a")  # at once: a wrong certificate does not pass
    assert client(tmp_path, **trusting, **{"tls-server-name": "kubernetes.internal"}).get("/a")["items"] == []
    assert client(tmp_path, server=server, **{"insecure-skip-tls-verify": True}).get("/a")["items"] == []


def test_tls_goes_through_a_proxy_to_the_server_itself(tls_server: tuple[str, Path], tmp_path: Path) -> None:
    server, authority = tls_server
    trusting = {"server": server, "certificate-authority": str(authority), "tls-server-name": "kubernetes.internal"}
    with proxied() as (port, seen):
        assert client(tmp_path, **trusting, **{"proxy-url": f"http://127.0.0.1:{port}"}).get("/a")["items"] == []
    assert len(seen) == 1
