"""The API client reads kubeconfigs as kubectl does, and says in one sentence what is missing."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.errors import MissingError
from infra.observe.client import ApiError, Client


class _Api(BaseHTTPRequestHandler):
    """Answers like an API server: two pages of pods, a missing object, and what credentials it saw."""

    def do_GET(self) -> None:
        if self.path.startswith("/api/v1/pods"):
            first = "continue=" not in self.path
            page = {"items": [{"n": 1 if first else 2}], "metadata": {"continue": "next" if first else ""}}
            self._answer(200, page)
        elif self.path == "/whoami":
            self._answer(200, {"authorization": self.headers.get("Authorization")})
        elif self.path == "/log":
            self._answer(200, "plain text", kind="text/plain")
        else:
            self._answer(404, {"message": f"{self.path} not found"})

    def _answer(self, status: int, body: Any, kind: str = "application/json") -> None:
        text = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    api = HTTPServer(("127.0.0.1", 0), _Api)
    threading.Thread(target=api.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{api.server_port}"
    api.shutdown()


def kubeconfig(folder: Path, server: str, user: dict[str, Any], **changes: Any) -> Path:
    document = {
        "current-context": "one",
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
        **changes,
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


def test_lists_go_on_over_all_pages(server: str, tmp_path: Path) -> None:
    assert [item["n"] for item in Client(kubeconfig(tmp_path, server, {})).list("/api/v1/pods")] == [1, 2]


def test_a_missing_object_is_none_and_another_refusal_an_error(server: str, tmp_path: Path) -> None:
    client = Client(kubeconfig(tmp_path, server, {}))
    assert client.find("/nothing") is None
    with pytest.raises(ApiError, match="/nothing not found") as caught:
        client.get("/nothing")
    assert caught.value.status == 404


def test_logs_come_as_text(server: str, tmp_path: Path) -> None:
    assert Client(kubeconfig(tmp_path, server, {})).get("/log") == "plain text"


def test_a_token_and_a_token_file_are_sent(server: str, tmp_path: Path) -> None:
    assert Client(kubeconfig(tmp_path, server, {"token": "abc"})).get("/whoami") == {"authorization": "Bearer abc"}
    (tmp_path / "token").write_text("def\n")
    assert Client(kubeconfig(tmp_path, server, {"tokenFile": "token"})).get("/whoami") == {"authorization": "Bearer def"}


def test_a_credential_plugin_is_run(server: str, tmp_path: Path) -> None:
    answer = json.dumps({"kind": "ExecCredential", "status": {"token": "from-plugin"}})
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable, "args": ["-c", f"print('''{answer}''')"]}
    assert Client(kubeconfig(tmp_path, server, {"exec": plugin})).get("/whoami") == {"authorization": "Bearer from-plugin"}


def test_a_credential_plugin_that_fails_says_so(server: str, tmp_path: Path) -> None:
    plugin = {"command": sys.executable, "args": ["-c", "import sys; sys.exit('no session: log in')"]}
    with pytest.raises(MissingError, match="no session: log in"):
        Client(kubeconfig(tmp_path, server, {"exec": plugin}))


@pytest.mark.parametrize(
    ("changes", "context", "said"),
    [
        ({}, "two", "has no context 'two'; it has: one"),
        ({"current-context": ""}, None, "has no current-context"),
        ({"clusters": []}, None, "has no cluster 'c'; it has: none"),
        ({"users": []}, None, "has no user 'u'"),
    ],
)
def test_what_the_kubeconfig_lacks_is_named(tmp_path: Path, changes: dict[str, Any], context: str | None, said: str) -> None:
    with pytest.raises(MissingError, match=said):
        Client(kubeconfig(tmp_path, "http://127.0.0.1:1", {}, **changes), context)


@pytest.mark.parametrize(("content", "said"), [(None, "there is no file"), ("- a", "is no kubeconfig"), ("a: [", "cannot be read")])
def test_a_file_that_is_no_kubeconfig_is_told(tmp_path: Path, content: str | None, said: str) -> None:
    path = tmp_path / "kubeconfig"
    if content is not None:
        path.write_text(content)
    with pytest.raises(MissingError, match=said):
        Client(path)


def test_a_server_that_does_not_answer_is_a_missing_cluster(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="does not answer"):
        Client(kubeconfig(tmp_path, "http://127.0.0.1:1", {})).get("/version")


@pytest.mark.parametrize(
    "change",
    [
        {"contexts": 5},
        {"clusters": [{"name": "c", "cluster": {"server": "not a url"}}]},
        {"clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1", "certificate-authority-data": "abc"}}]},
        {"users": [{"name": "u", "user": {"token": "secret\nword"}}]},
        {"users": [{"name": "u", "user": {"token": 5}}]},
        {"users": [{"name": "u", "user": {"tokenFile": "/nowhere/token"}}]},
    ],
)
def test_a_kubeconfig_that_cannot_work_is_a_sentence_without_its_secrets(tmp_path: Path, change: dict[str, Any]) -> None:
    document = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(document | change))
    with pytest.raises(MissingError, match="kubeconfig") as refused:
        Client(file)
    assert "secret" not in str(refused.value)
