"""The hub is asked only where it is asked for; its answers become files of the checkout. Here it is a server of the test's own."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from infra.__main__ import main
from infra.catalog.hub_models import fetched_model, file_of, is_repository, keep_model
from infra.errors import ConfigError, MissingError
from infra.hub import fetch_config

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "num_hidden_layers": 36,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 12288,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}


class Hub:
    """`files`: path -> (status, body, headers). Keeps the requests with their Authorization."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[int, bytes, dict[str, str]]] = {}
        self.asked: list[tuple[str, str | None]] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.asked.append((self.path, self.headers.get("Authorization")))
                status, body, headers = hub.files.get(self.path, (404, b"not found", {}))
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def hold(self, path: str, content: Any, status: int = 200, **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.files[path] = (status, body, {"X-Repo-Commit": "0a1b", **headers})

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def hub() -> Iterator[Hub]:
    running = Hub()
    running.hold("/acme/Tiny-8B/resolve/main/config.json", CONFIG)
    yield running
    running.close()


def fetch(hub: Hub, name: str = "acme/Tiny-8B", **environ: str) -> Any:
    return fetch_config(name, path="--model", environ={"HF_ENDPOINT": hub.address, **environ})


def test_a_config_comes_with_the_commit_that_it_is_of(hub: Hub) -> None:
    found = fetch(hub)
    assert (found.config, found.revision) == (CONFIG, "0a1b")
    assert hub.asked[0] == ("/acme/Tiny-8B/resolve/main/config.json", None)


def test_the_quantisation_of_modelopt_is_read_from_its_own_file(hub: Hub) -> None:
    hub.hold("/acme/Tiny-8B/resolve/0a1b/hf_quant_config.json", {"quantization": {"quant_algo": "NVFP4", "group_size": 16}})
    assert fetch(hub).config["quantization_config"] == {
        "quant_method": "modelopt",
        "quantization": {"quant_algo": "NVFP4", "group_size": 16},
    }


def test_a_token_goes_to_the_hub_and_not_to_where_it_redirects(hub: Hub) -> None:
    other = Hub()
    try:
        other.hold("/blob", CONFIG)
        hub.hold("/acme/Gated/resolve/main/config.json", b"", status=302, Location=f"{other.address}/blob")
        assert fetch(hub, "acme/Gated", HF_TOKEN="secret").config == CONFIG
        assert hub.asked[0][1] == "Bearer secret"
        assert other.asked == [("/blob", None)]
    finally:
        other.close()


@pytest.mark.parametrize(
    "name",
    ["Tiny-8B", "acme/../etc", "acme/a/b", "/acme/x", "acme/", "acme/-x", "acme/x?y", "https://huggingface.co/acme/x", "acme/a b"],
)
def test_what_is_no_name_of_the_hub_is_not_asked_for(hub: Hub, name: str) -> None:
    assert not is_repository(name)
    with pytest.raises(ConfigError, match="is no name on the hub"):
        fetch(hub, name)
    assert hub.asked == []


def test_an_unknown_repository_a_gated_one_and_a_broken_hub_are_told_apart(hub: Hub) -> None:
    with pytest.raises(ConfigError, match=r"--model: .* has no acme/None with a config.json"):
        fetch(hub, "acme/None")
    hub.hold("/acme/Gated/resolve/main/config.json", b"", status=401)
    with pytest.raises(MissingError, match="it is gated and HF_TOKEN is not set"):
        fetch(hub, "acme/Gated")
    with pytest.raises(MissingError, match="HF_TOKEN has no access to it"):
        fetch(hub, "acme/Gated", HF_TOKEN="x")
    hub.hold("/acme/Down/resolve/main/config.json", b"", status=503)
    with pytest.raises(MissingError, match="answers 503"):
        fetch(hub, "acme/Down")
    hub.hold("/acme/Html/resolve/main/config.json", b"<html>")
    with pytest.raises(ConfigError, match="is no JSON map"):
        fetch(hub, "acme/Html")
    hub.hold("/acme/List/resolve/main/config.json", [1])
    with pytest.raises(ConfigError, match="is no JSON map"):
        fetch(hub, "acme/List")
    with pytest.raises(MissingError, match=r"--model: http://127.0.0.1:9 cannot be reached .* stacks/models"):
        fetch_config("acme/Tiny-8B", path="--model", environ={"HF_ENDPOINT": "http://127.0.0.1:9"})


def test_what_was_kept_is_found_again_as_it_was(tmp_path: Path) -> None:
    file = keep_model("acme/Tiny-8B", "0a1b", CONFIG, tmp_path)
    assert file == file_of("acme/Tiny-8B", tmp_path)
    model = fetched_model("acme/Tiny-8B", tmp_path)
    assert model is not None
    assert (model.id, model.config) == ("acme/Tiny-8B", CONFIG)
    assert "0a1b" in model.note
    assert fetched_model("acme/Other", tmp_path) is None
    assert fetched_model("../Other", tmp_path) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"revision": "1", "config": []}'])
def test_a_kept_file_that_was_broken_is_named(tmp_path: Path, text: str) -> None:
    file = file_of("acme/Tiny-8B", tmp_path)
    file.parent.mkdir()
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"acme/Tiny-8B\.json.* fetch it again"):
        fetched_model("acme/Tiny-8B", tmp_path)


def test_fit_takes_an_unknown_model_from_the_hub_once(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_ENDPOINT", hub.address)
    words = ["fit", "--model", "acme/Tiny-8B", "--gpu", "l40s", "--format", "json"]
    assert main(words) == 2
    assert hub.asked == []
    capsys.readouterr()
    assert main([*words, "--from-hub"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["fits"] is True
    assert "stacks/models/acme/Tiny-8B.json; commit it" in printed.err
    asked = len(hub.asked)
    assert main(words) == 0
    assert main([*words, "--from-hub"]) == 0
    assert len(hub.asked) == asked


def test_without_a_network_the_status_is_3_and_the_way_out_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert main(["fit", "--model", "acme/Tiny-8B", "--gpu", "l40s", "--from-hub"]) == 3
    assert "give the model's config.json as modelConfig" in capsys.readouterr().err
    assert main(["fit", "--model", "Qwen3-8B", "--gpu", "l40s", "--from-hub"]) == 0
