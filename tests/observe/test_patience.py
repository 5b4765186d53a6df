"""A request whose failure may pass is sent again; one that cannot pass, or that could be acted on twice, is not."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infra.errors import MissingError
from infra.observe import client as client_module
from infra.observe.client import WAIT_PATIENCE_SECONDS, ApiError, Client, LostError, growing_pauses
from tests.observe.test_client import kubeconfig

LOST = (0, {})  # the connection ends without an answer


class Api:
    """Answers requests from a list of (status, headers), then with 200; `seen` are the methods, paths and headers of all requests."""

    def __init__(self, *answers: tuple[int, dict[str, str]], accept: str = "") -> None:
        self.answers, self.accept, self.seen = list(answers), accept, []
        api = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                api.seen.append((self.command, self.path, self.headers))
                status, headers = api.answers.pop(0) if api.answers else (200, {})
                if api.accept and self.headers.get("Authorization") != f"Bearer {api.accept}":
                    status = 401
                if status == 0:
                    self.connection.close()
                    return
                self.send_response(status)
                body = json.dumps({"message": f"answer {status}", "items": []}).encode()
                for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_DELETE = do_PATCH = answer

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    @property
    def tokens(self) -> list[str]:
        return [headers.get("Authorization", "") for _, _, headers in self.seen]


@contextmanager
def served(*answers: tuple[int, dict[str, str]], accept: str = "") -> Iterator[Api]:
    api = Api(*answers, accept=accept)
    threading.Thread(target=api.server.serve_forever, daemon=True).start()
    try:
        yield api
    finally:
        api.server.shutdown()
        api.server.server_close()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long was paused, without the pause; the clock goes on by it."""
    made: list[float] = []
    clock = SimpleNamespace(sleep=made.append, monotonic=lambda: time.monotonic() + sum(made), time=time.time)
    monkeypatch.setattr(client_module, "time", clock)
    return made


def patient(folder: Path, api: Api, user: dict[str, Any] | None = None) -> Client:
    return Client(kubeconfig(folder, api.url, user or {})).patient()


def test_pauses_grow_from_2_to_15_seconds() -> None:
    assert list(islice(growing_pauses(), 8)) == [2, 3, 4.5, 6.75, 10.125, 15, 15, 15]


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504, 0])
def test_an_answer_that_may_pass_is_asked_for_again(tmp_path: Path, pauses: list[float], status: int) -> None:
    with served((status, {}), (status, {})) as api:
        assert patient(tmp_path, api).get("/api") == {"message": "answer 200", "items": []}
    assert (len(api.seen), pauses) == (3, [2, 3])


@pytest.mark.parametrize("status", [400, 403, 404, 409, 410, 422])
def test_an_answer_that_stays_is_told_at_once(tmp_path: Path, pauses: list[float], status: int) -> None:
    with served((status, {})) as api, pytest.raises(ApiError, match=f"answer {status}") as caught:
        patient(tmp_path, api).get("/api")
    assert (caught.value.status, len(api.seen), pauses) == (status, 1, [])


def test_the_servers_own_wish_for_a_pause_is_heard(tmp_path: Path, pauses: list[float]) -> None:
    with served((429, {"Retry-After": "7"}), (429, {"Retry-After": "1"}), (503, {"Retry-After": "Wed, 21 Oct"})) as api:
        patient(tmp_path, api).get("/api")
    assert pauses == [7, 3, 4.5]


@pytest.mark.parametrize(("status", "again"), [(429, True), (503, True), (500, False), (502, False), (504, False), (0, False)])
def test_a_post_is_sent_again_only_where_nothing_was_done(tmp_path: Path, pauses: list[float], status: int, again: bool) -> None:
    with served((status, {})) as api:
        client = patient(tmp_path, api)
        if again:
            client.request("POST", "/api", body={})
        else:
            with pytest.raises((ApiError, LostError)):
                client.request("POST", "/api", body={})
    assert len(api.seen) == (2 if again else 1)


def test_a_delete_whose_answer_was_lost_is_done_where_the_object_is_gone(tmp_path: Path, pauses: list[float]) -> None:
    with served(LOST, (404, {})) as api:
        assert patient(tmp_path, api).request("DELETE", "/api") == {}
    with served((404, {})) as api, pytest.raises(ApiError):
        patient(tmp_path, api).request("DELETE", "/api")


def test_a_refused_connection_is_borne_for_5_minutes_and_then_told(tmp_path: Path, pauses: list[float]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        nobody = f"http://127.0.0.1:{held.getsockname()[1]}"
    client = Client(kubeconfig(tmp_path, nobody, {})).patient()
    with pytest.raises(LostError, match=r"does not answer: .*refused"):
        client.get("/version")
    assert WAIT_PATIENCE_SECONDS - 15 <= sum(pauses) <= WAIT_PATIENCE_SECONDS == 300


def test_an_api_server_that_comes_back_within_5_minutes_is_not_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served() as api:
        client = patient(tmp_path, api)
        away: list[Any] = [ConnectionRefusedError("refused"), TimeoutError("timed out"), ConnectionResetError("reset")]
        through: Callable[..., Any] = client._transport.exchange

        def exchange(*args: Any, **options: Any) -> Any:
            if away:
                raise away.pop(0)
            return through(*args, **options)

        monkeypatch.setattr(client._transport, "exchange", exchange)
        monkeypatch.setattr(client_module, "time", SimpleNamespace(sleep=lambda _: None, monotonic=time.monotonic, time=time.time))
        assert client.get("/api")["items"] == []
    assert not away and len(api.seen) == 1


def test_one_look_gives_up_after_seconds(tmp_path: Path, pauses: list[float]) -> None:
    with served(*[(503, {})] * 9) as api, pytest.raises(ApiError, match="answer 503"):
        Client(kubeconfig(tmp_path, api.url, {})).get("/api")
    assert sum(pauses) <= 5


def plugin(folder: Path, seconds: float | None = None) -> dict[str, Any]:
    """A credential plugin that counts its runs: token-1, token-2, ..., each good for `seconds`."""
    program = folder / "plugin.py"
    runs = folder / "runs"
    status = (
        {}
        if seconds is None
        else {"expirationTimestamp": (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")}
    )
    program.write_text(
        "import json, pathlib\n"
        f"runs = pathlib.Path({str(runs)!r})\n"
        "count = len(runs.read_text()) + 1 if runs.exists() else 1\n"
        "runs.write_text('x' * count)\n"
        f"print(json.dumps({{'status': {{'token': f'token-{{count}}', **{status!r}}}}}))\n"
    )
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable, "args": [str(program)]}}


def test_a_plugins_token_is_kept_until_its_end(tmp_path: Path) -> None:
    with served() as api:
        client = patient(tmp_path, api, plugin(tmp_path, 900))
        client.get("/a")
        client.get("/b")
    assert api.tokens == ["Bearer token-1"] * 2


def test_a_plugin_runs_again_at_the_end_of_its_token(tmp_path: Path) -> None:
    with served() as api:
        client = patient(tmp_path, api, plugin(tmp_path, 1))
        client.get("/a")
        client.get("/b")
    assert len(set(api.tokens)) > 1 and api.tokens[-1] != "Bearer token-1"


def test_a_plugin_runs_again_where_its_token_is_refused_and_nothing_is_paused_for_it(tmp_path: Path, pauses: list[float]) -> None:
    with served(accept="token-2") as api:
        patient(tmp_path, api, plugin(tmp_path)).get("/a")
    assert (api.tokens, pauses) == (["Bearer token-1", "Bearer token-2"], [])


def test_credentials_that_stay_refused_are_told_with_the_way_out(tmp_path: Path, pauses: list[float]) -> None:
    with served(accept="another") as api, pytest.raises(ApiError, match="log in again") as caught:
        Client(kubeconfig(tmp_path, api.url, plugin(tmp_path))).get("/a")
    assert caught.value.status == 401 and caught.value.exit_status == 3


def test_many_threads_whose_token_is_refused_run_the_plugin_once(tmp_path: Path) -> None:
    with served(accept="token-2") as api:
        client = patient(tmp_path, api, plugin(tmp_path))
        threads = [threading.Thread(target=client.get, args=("/a",)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (tmp_path / "runs").read_text() == "xx"


def test_a_token_file_is_read_again_and_its_last_token_holds_while_it_is_away(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    with served() as api:
        client = patient(tmp_path, api, {"tokenFile": "token", "token": "static"})
        client.get("/a")
        file.write_text("two\n")
        client.get("/b")
        file.unlink()
        client.get("/c")
    assert api.tokens == ["Bearer one", "Bearer two", "Bearer two"]


def test_impersonation_is_sent_as_kubectl_sends_it(tmp_path: Path) -> None:
    user = {
        "token": "t", "as": "jané", "as-uid": "7", "as-groups": ["dev", "ops"],
        "as-user-extra": {"scopes": ["view", "edit"], "example.com/project": ["x"]},
    }  # fmt: skip
    with served() as api:
        patient(tmp_path, api, user).get("/a")
    headers = api.seen[0][2]
    assert headers["Impersonate-User"].encode("latin-1").decode() == "jané"
    assert headers.get_all("Impersonate-Group") == ["dev", "ops"]
    assert headers["Impersonate-Uid"] == "7"
    assert headers.get_all("Impersonate-Extra-scopes") == ["view", "edit"]
    assert headers["Impersonate-Extra-example.com%2Fproject"] == "x"


def test_impersonating_groups_needs_a_user(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="`as` has to name"):
        Client(kubeconfig(tmp_path, "http://127.0.0.1:1", {"as-groups": ["dev"]}))
