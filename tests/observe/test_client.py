"""The API client reads kubeconfigs as kubectl does, and says in one sentence what is missing."""

from __future__ import annotations

import json
import ssl
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

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
        elif self.path.startswith("/echo"):
            self._answer(200, {"path": self.path, "type": self.headers.get("Content-Type")})
        elif self.path == "/broken":
            self._answer(500, "no JSON", kind="text/plain")
        elif self.path == "/log":
            self._answer(200, "plain text", kind="text/plain")
        else:
            self._answer(404, {"message": f"{self.path} not found"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(201, {"body": json.loads(body), "type": self.headers.get("Content-Type")})

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


def test_a_list_asks_for_pages_and_keeps_its_own_query(server: str, tmp_path: Path) -> None:
    class Asked(Client):
        queries: ClassVar[list[Any]] = []

        def get(self, path: str, *, query: Any = None) -> Any:
            self.queries.append(query)
            return super().get(path, query=query)

    list(Asked(kubeconfig(tmp_path, server, {})).list("/api/v1/pods", query={"labelSelector": "a=b"}))
    page = {"labelSelector": "a=b", "limit": "500"}
    assert Asked.queries == [page, {**page, "continue": "next"}]


def test_an_empty_collection_has_no_objects(server: str, tmp_path: Path) -> None:
    assert list(Client(kubeconfig(tmp_path, server, {})).list("/echo")) == []


def test_a_query_is_quoted_and_a_call_without_one_has_none(server: str, tmp_path: Path) -> None:
    client = Client(kubeconfig(tmp_path, server, {}))
    assert client.get("/echo", query={"a": "b c"})["path"] == "/echo?a=b+c"
    assert client.get("/echo") == {"path": "/echo", "type": None}


def test_a_body_goes_as_json_of_the_kind_that_is_asked_for(server: str, tmp_path: Path) -> None:
    client = Client(kubeconfig(tmp_path, server, {}))
    assert client.request("POST", "/x", body={"a": 1}) == {"body": {"a": 1}, "type": "application/json"}
    patch = "application/merge-patch+json"
    assert client.request("POST", "/x", body={}, content_type=patch) == {"body": {}, "type": patch}


def test_an_error_without_a_status_object_is_told_by_its_number_and_find_does_not_hide_it(server: str, tmp_path: Path) -> None:
    with pytest.raises(ApiError, match="HTTP status 500") as caught:
        Client(kubeconfig(tmp_path, server, {})).find("/broken")
    assert caught.value.status == 500


def test_a_user_with_a_password_is_sent_as_basic(server: str, tmp_path: Path) -> None:
    answer = Client(kubeconfig(tmp_path, server, {"username": "a", "password": "b"})).get("/whoami")
    assert answer == {"authorization": "Basic YTpi"}
    assert Client(kubeconfig(tmp_path, server, {"username": "a"})).get("/whoami") == {"authorization": "Basic YTo="}
    assert Client(kubeconfig(tmp_path, server, {"password": "b"})).get("/whoami") == {"authorization": None}


def test_a_context_without_a_user_sends_no_credentials(server: str, tmp_path: Path) -> None:
    changes = {"contexts": [{"name": "one", "context": {"cluster": "c"}}], "users": None}
    assert Client(kubeconfig(tmp_path, server, {}, **changes)).get("/whoami") == {"authorization": None}


def test_the_named_context_counts_before_the_current_one(server: str, tmp_path: Path) -> None:
    contexts = [{"name": name, "context": {"cluster": name, "user": "u"}} for name in ("one", "two")]
    clusters = [{"name": "one", "cluster": {"server": "http://127.0.0.1:1"}}, {"name": "two", "cluster": {"server": f"{server}/"}}]
    path = kubeconfig(tmp_path, server, {}, contexts=contexts, clusters=clusters)
    assert Client(path, "two").get("/log") == "plain text"
    assert Client(path).server == "http://127.0.0.1:1"


def test_the_servers_certificate_is_checked_unless_the_kubeconfig_says_otherwise(tmp_path: Path) -> None:
    def mode(**cluster: Any) -> tuple[bool, ssl.VerifyMode]:
        clusters = [{"name": "c", "cluster": {"server": "https://127.0.0.1:1", **cluster}}]
        context = Client(kubeconfig(tmp_path, "", {}, clusters=clusters))._transport.context(None)
        return context.check_hostname, context.verify_mode

    assert mode() == (True, ssl.CERT_REQUIRED)
    assert mode(**{"insecure-skip-tls-verify": True}) == (False, ssl.CERT_NONE)


@pytest.mark.parametrize("only", ["client-certificate", "client-key"])
def test_half_a_client_certificate_is_none(server: str, tmp_path: Path, only: str) -> None:
    assert Client(kubeconfig(tmp_path, server, {f"{only}-data": "bm8gY2VydGlmaWNhdGU="})).get("/whoami") == {"authorization": None}


def test_a_client_certificate_is_loaded_with_its_key_from_text_or_file(server: str, tmp_path: Path) -> None:
    (tmp_path / "pair.crt").write_text("no certificate")
    user = {"client-certificate": "pair.crt", "client-key-data": "bm8ga2V5"}
    with pytest.raises(MissingError, match="SSLError"):
        Client(kubeconfig(tmp_path, server, user))


def plugin(program: str, **more: Any) -> dict[str, Any]:
    return {"exec": {"apiVersion": "v1", "command": sys.executable, "args": ["-c", program], **more}}


def test_a_credential_plugin_gets_its_own_variables_and_what_kubectl_tells_it(server: str, tmp_path: Path) -> None:
    program = (
        "import json, os; told = json.loads(os.environ['KUBERNETES_EXEC_INFO']);"
        "words = [os.environ['WHO'], told['apiVersion'], told['kind'], str(told['spec']['interactive'])];"
        "print(json.dumps({'status': {'token': '/'.join(words)}}))"
    )
    user = plugin(program, env=[{"name": "WHO", "value": "me"}])
    assert Client(kubeconfig(tmp_path, server, user)).get("/whoami") == {"authorization": "Bearer me/v1/ExecCredential/False"}


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import sys; sys.stderr.write('x' * 400 + 'the end'); sys.exit(3)", "ended with 3: " + "x" * 293 + "the end$"),
        ("print('no json')", "failed: "),
        ("print('{}')", "failed: "),
        ("import sys; print('{\"status\": {}}'); sys.exit(1)", "ended with 1: $"),
    ],
)
def test_a_credential_plugin_that_gives_nothing_usable_is_told_by_its_last_words(
    server: str, tmp_path: Path, program: str, said: str
) -> None:
    with pytest.raises(MissingError, match=said):
        Client(kubeconfig(tmp_path, server, plugin(program)))


def test_a_credential_plugin_that_is_not_installed_is_named(server: str, tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="its credential plugin no-such-plugin failed"):
        Client(kubeconfig(tmp_path, server, {"exec": {"command": "no-such-plugin"}}))


def test_a_certificate_of_a_credential_plugin_is_used_as_it_comes(server: str, tmp_path: Path) -> None:
    status = {"status": {"clientCertificateData": "no certificate", "clientKeyData": "no key"}}
    with pytest.raises(MissingError, match="SSLError"):
        Client(kubeconfig(tmp_path, server, plugin(f"print({json.dumps(json.dumps(status))})")))
