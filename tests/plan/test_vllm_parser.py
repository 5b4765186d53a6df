"""The table of flags against the parser of vLLM itself: its recorded answer, and where vLLM is installed, the parser.

`NUMAWISE_VLLM_PYTHON=/path/to/python pytest -m vllm tests/plan/test_vllm_parser.py` asks the parser of an interpreter that has vLLM (docs/catalog.md says how it is
installed without a GPU), and compares what this checkout renders.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from infra.catalog.engine_releases import engine_release
from infra.render.serving.container import flag, vllm_command
from tests.support.documents import with_change
from tests.support.golden import STACKS, plan_of

PARSER = Path(__file__).with_name("vllm_parser.py")
RECORDED = sorted((Path(__file__).parents[1] / "fixtures" / "vllm").glob("parser-*.json"))
INTERPRETER = os.environ.get("NUMAWISE_VLLM_PYTHON", "")


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.stem)
def test_the_table_has_the_flags_that_the_parser_has(file: Path) -> None:
    recorded = json.loads(file.read_text())
    release = engine_release(recorded["version"].split("+")[0])
    assert sorted(release.flags) == recorded["flags"]
    negations = {name.removeprefix("no-") for name in recorded["negations"]}
    assert not negations & release.without_negation


def test_there_is_a_recording() -> None:
    assert RECORDED


def commands() -> list[list[str]]:
    """What stands after `vllm serve`, for the stacks of this checkout and for every field and kind of flag."""
    from tests.plan.test_cluster import plan

    found = [vllm_command(model)[2:] for stack in STACKS for model in plan_of(stack).models]
    changes: tuple[dict[str, Any], ...] = (
        {"blockSize": 32},
        {"quantization": "fp8", "kvCacheDtype": "fp8", "dtype": "bfloat16"},
        {"maxNumSeqs": 64, "maxNumBatchedTokens": 4096},
        {"dataParallelSize": 2, "tensorParallelSize": 2, "resources": {}},
        {"engineArgs": {"enable-prefix-caching": False, "enforce-eager": True, "seed": 3}},
        {"engineArgs": {"override-generation-config": {"temperature": 0.5}, "limit-mm-per-prompt": {"image": 2}}},
        {"engineArgs": {"allowed-origins": ["*"], "middleware": "a.b"}},
    )
    for change in changes:
        document = with_change("models[0].replicas", 1)
        document["models"][0] |= change
        found.append(vllm_command(plan(document).models[0])[2:])
    return found


@pytest.mark.vllm
@pytest.mark.skipif(not INTERPRETER, reason="NUMAWISE_VLLM_PYTHON names no interpreter with vLLM")
def test_what_is_rendered_is_taken_by_the_parser_itself() -> None:
    asked = [*commands(), ["model", *flag("no-such-flag", 1)]]
    answer = subprocess.run([INTERPRETER, str(PARSER)], input=json.dumps(asked), capture_output=True, text=True, check=True)
    found = json.loads(answer.stdout)
    assert list(found["refused"]) == [str(len(asked) - 1)], found["refused"]
    assert sorted(engine_release(found["version"].split("+")[0]).flags) == found["flags"]
