"""Inputs that nobody would write on purpose: mutations of stack files, config.json, cases of the kubelet and tools' outputs, by seed."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.support.documents import small_document

OUTPUTS = Path(__file__).parents[1] / "outputs" / "fixtures"

_TOPOLOGY = {
    "sku": "mi300x", "threadsPerCore": 2, "sockets": 2, "virtualMachine": False, "numaInGuest": True, "linkDomains": [[0, 1, 2, 3, 4, 5, 6, 7]],
    "numaNodes": [
        {"cpus": "0-55,112-167", "memory": "1Ti", "gpus": [0, 1, 2, 3], "nics": ["mlx5_0"], "distances": [10, 32], "hugepages": {"1Gi": 2}, "socket": 0},
        {"cpus": "56-111,168-223", "memory": "1Ti", "gpus": [4, 5, 6, 7], "nics": ["mlx5_1"], "distances": [32, 10], "socket": 1},
    ],
}  # fmt: skip
_CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
    "num_hidden_layers": 32, "num_key_value_heads": 8, "max_position_embeddings": 8192, "vocab_size": 128256, "torch_dtype": "bfloat16",
    "rope_scaling": {"type": "linear", "factor": 2.0}, "quantization_config": {"quant_method": "fp8", "activation_scheme": "static"},
}  # fmt: skip
_POOL = {
    "platform": "existing", "labels": {"team": "ml"}, "taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}],
    "kubelet": {
        "reservedSystemCPUs": "0,56,112,168", "kubeReserved": {"memory": "1Gi"}, "maxPods": 110,
        "evictionHard": {"memory.available": "100Mi"}, "cpuManagerPolicyOptions": {"full-pcpus-only": "true"}, "logging": {"format": "json"},
    },
    "rollout": {"maxUnavailable": 1, "canary": True, "drain": {"force": False}}, "devicePlugin": {"passDeviceSpecs": True, "deviceGroups": [44]},
    "coTenants": [{"name": "agent", "perNode": 1, "cpu": "1", "memory": "256Mi", "qosClass": "Guaranteed"}],
}  # fmt: skip
_MODEL = {
    "namespace": "inference", "pipelineParallelSize": 1, "dataParallelSize": 1, "enableExpertParallel": False, "objective": "latency", "maxNumSeqs": 64,
    "maxNumBatchedTokens": 8192, "blockSize": 16, "dtype": "bfloat16", "quantization": None, "kvCacheDtype": "fp8", "image": "vllm/vllm-openai:v0.33.0",
    "podAntiAffinity": "preferred", "strategy": {"maxSurge": 0, "maxUnavailable": 1}, "startup": {"budgetSeconds": 1800}, "progressDeadlineSeconds": 2400,
    "initContainers": [{"name": "wait", "image": "busybox", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "2", "memory": "1Gi"}}}],
    "sidecars": [{"name": "log", "image": "busybox", "args": ["a"], "env": [{"name": "A", "value": "b"}], "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}],
    "engineArgs": {"enable-prefix-caching": True, "cpu-offload-gb": 1}, "env": {"A": "b"},
}  # fmt: skip
CASE = {
    "id": "two-pods",
    "machine": {
        "numa": [
            {"id": 0, "cpus": [[0, 4], [1, 5]], "socket": 0, "memory_bytes": 68719476736, "hugepages": {"1Gi": 2}, "distances": [10, 21]},
            {"id": 1, "cpus": [[2, 6], [3, 7]], "socket": 1, "memory_bytes": 68719476736, "distances": [21, 10]},
        ]
    },
    "kubelet": {"topologyManagerPolicy": "single-numa-node", "cpuManagerPolicy": "static", "kubeReserved": {"cpu": "1"}, "evictionHard": {"memory.available": "1Gi"}},
    "devices": {"nvidia.com/gpu": [{"id": "gpu0", "numa": [0]}, {"id": "gpu1", "numa": [1]}]},
    "pods": [{"name": "a", "containers": [{"name": "c", "limits": {"cpu": 2, "memory": "1Gi", "nvidia.com/gpu": 1}}]}, {"name": "a", "remove": True}],
    "kubernetesVersion": "1.37", "deviceAllocation": "ordered", "holdStart": False, "debug": False,
}  # fmt: skip
_NUMBERS = (
    0,
    -1,
    1,
    2,
    3,
    7,
    8,
    1000,
    2**31 - 1,
    2**31,
    2**63 - 1,
    2**63,
    10**25,
    1e-300,
    1e300,
    0.5,
    -0.5,
    1.5,
    float("nan"),
    float("inf"),
)
_TEXTS = (
    "", " ", "0", "-1", "1", "1Gi", "1e9", "1e999", "500m", "0-3", "3-0", "0-8191", "0-99999", "99999999999999999999", "0" * 5000, "x" * 50_000, "a b", "a\nb", "a\0b",
    "ä", "日本", "\u202e", "\ud800", "../..", "/", "/dev/shm", "~", "null", "true", "2026-01-31", "1:30", "dgx-h100", "h100", "MI300X", "none", "None", "static",
    "single-numa-node", "vllm/vllm-openai:v0.11.0", "a@sha256:" + "0" * 64, "${HOME}", "{{x}}", "%s%s", "fp8", "awq", "0.33.0", "9.9.9", "yes",
)  # fmt: skip

_NAMES = (
    "dgx-h100", "dgx-a100-640gb", "azure-nd96isr_mi300x_v5", "gcp-a3-highgpu-8g", "l40s", "mi300x", "h100-sxm5-80gb", "Qwen/Qwen3-8B", "openai/gpt-oss-120b",
    "deepseek-ai/DeepSeek-V3", "meta-llama/Llama-3.1-8B-Instruct", "restricted", "best-effort", "pod", "Static", "None", "required", "none", "eks", "gke", "aks",
    "openshift", "fp8", "bitsandbytes", "auto", "float16", "NoExecute", "Burstable",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Input:
    """A call of the command line: `words`, then the file's name; `content` goes into the file."""

    words: tuple[str, ...]
    content: bytes
    suffix: str
    statuses: tuple[int, ...]


def drawn(seed: int) -> Input:
    """The input of a seed; the same on every machine."""
    random = Random(seed)
    kind = random.choice(("plan",) * 6 + ("fit", "admit", "topology", "shape", "transport"))
    if kind == "plan":
        return Input(words=("plan", "--format", "json", "--config"), content=_stack(random), suffix=".yaml", statuses=(0, 2))
    if kind == "fit":
        content = _text(
            _mutated(random, _CONFIG if random.random() < 0.5 else {"modelConfig": _CONFIG, "maxModelLen": 4096, "gpu": "h100"}),
            random,
        )
        return Input(
            words=("fit", *_fit_options(random), "--format", "json", "--config"),
            content=content,
            suffix=".json",
            statuses=(0, 1, 2),
        )
    if kind == "admit":
        content = _broken(json.dumps(_mutated(random, [CASE, deepcopy(CASE)])), random)
        return Input(words=("admit", "--format", "json"), content=content, suffix=".json", statuses=(0, 2))
    logs = sorted(OUTPUTS.glob("*.log") if kind == "transport" else OUTPUTS.glob("*.*"))
    text = "\n".join(random.choice(logs).read_text(encoding="utf-8", errors="replace") for _ in range(random.choice((1, 1, 2))))
    return Input(words=(kind, "--format", "json"), content=_mutated_text(text[:60_000], random), suffix=".txt", statuses=(0, 1, 2))


def _fit_options(random: Random) -> list[str]:
    options = ["--gpu", random.choice(("H100 80GB", "MI300X", "l40s", *_TEXTS[:20]))] if random.random() < 0.8 else []
    for option in (
        "--tp",
        "--pp",
        "--max-model-len",
        "--max-num-seqs",
        "--block-size",
        "--gpu-memory-utilization",
        "--vllm-version",
        "--dtype",
        "--gpu-memory-gib",
    ):
        if random.random() < 0.15:
            options.append(f"{option}={random.choice((*_TEXTS, *map(str, _NUMBERS)))}")
    return [option.replace("\0", "") for option in options]


def _stack(random: Random) -> bytes:
    document = small_document()
    pool, model = document["nodePools"][0], document["models"][0]
    for section, more in ((pool, _POOL), (model, _MODEL)):
        section |= {key: deepcopy(value) for key, value in more.items() if random.random() < 0.2}
    if random.random() < 0.5:
        del pool["nodeShape"]
        pool["topology"] = deepcopy(_TOPOLOGY)
        model["model"] = "Qwen/Qwen2.5-72B-Instruct"
    if random.random() < 0.3:
        model["modelConfig"] = deepcopy(_CONFIG)
    if random.random() < 0.3:
        document |= {
            "connection": {"kubeconfig": "~/.kube/config"},
            "images": {"mirror": "registry.example/m", "pullSecrets": ["p"]},
            "adopt": ["ConfigMap/a/b"],
        }
    mutated: Any = _mutated(random, document)
    if random.random() < 0.3:
        mutated = {"config": {"numawise:cluster": mutated, "numawise:apiKey": {"secure": "v1:x"}}, "encryptionsalt": "v1:y"}
    return _text(mutated, random)


def _mutated(random: Random, document: Any) -> Any:
    document = deepcopy(document)
    for _ in range(random.choice((1, 1, 1, 2, 3, 6))):
        places = _places(document)
        holder, key = random.choice(places)
        _mutate(random, holder, key)
    return document


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every (mapping or list, key or index) of a document."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting and len(found) < 5000:
        holder = waiting.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        for key in keys:
            found.append((holder, key))
            if isinstance(holder[key], dict | list):
                waiting.append(holder[key])
    return found


def _mutate(random: Random, holder: Any, key: Any) -> None:
    value = holder[key]
    change = random.randrange(9)
    if change == 0:
        del holder[key]
    elif change == 1 and isinstance(holder, dict):
        holder[random.choice((str(key)[:-1], f"{key}x", str(key).upper(), random.choice(_TEXTS), "<<", "secure"))] = holder.pop(key)
    elif change == 2 and isinstance(holder, list):
        holder.extend(deepcopy(value) for _ in range(random.choice((1, 2, 50))))
    elif change == 3:
        nested = value
        for _ in range(random.choice((1, 2, 10, 80))):
            nested = [nested] if random.random() < 0.5 else {"x": nested}
        holder[key] = nested
    elif change == 4:
        holder[key] = random.choice(
            ([], {}, None, True, False, [None], {"": 1}, [[]], ["x"] * 2000, {f"k{i}": i for i in range(2000)})
        )
    elif change == 5 and isinstance(value, int | float) and not isinstance(value, bool):
        holder[key] = random.choice((value + 1, -value, value * 1000, value / 3, str(value), value * 10**12))
    elif change == 6 and isinstance(value, str):
        cut = random.randrange(len(value) + 1)
        holder[key] = value[:cut] + random.choice(_TEXTS) + value[cut:]
    elif isinstance(value, bool):
        holder[key] = not value
    elif random.random() < 0.5:
        holder[key] = _plausible(random, value)
    else:
        holder[key] = random.choice(_NUMBERS) if random.random() < 0.5 else random.choice(_TEXTS)


def _plausible(random: Random, value: Any) -> Any:
    """Another value of the same kind, which gets further than the first look at types."""
    number = random.choice((random.randint(1, 16), random.randint(1, 300), 2 ** random.randrange(20)))
    if isinstance(value, int):
        return number
    if isinstance(value, float):
        return random.random()
    if isinstance(value, str):
        return random.choice((str(number), f"{number}Gi", f"{number}", f"0-{number}", random.choice(_NAMES)))
    return deepcopy(value)


def _text(document: Any, random: Random) -> bytes:
    """As JSON, which is YAML too; where it is to be YAML alone, also with words that JSON does not have."""
    text = json.dumps(document, indent=random.choice((None, 1)))
    if random.random() < 0.1:
        text = text.replace(
            "null",
            random.choice(
                (
                    "~",
                    "2026-01-31",
                    "2026-01-31T00:00:00Z",
                    ".nan",
                    ".inf",
                    "!!binary aGk=",
                    "!!set {a}",
                    "0xFFFFFFFFFFFFFFFFFF",
                    "*a",
                )
            ),
        )
    if random.random() < 0.05:
        text = text.replace("[", "&a [", 1).replace("true", "*a").replace("1", "*a", 3)
    return _broken(text, random)


def _broken(text: str, random: Random) -> bytes:
    if random.random() < 0.05:
        cut = random.randrange(len(text) + 1)
        text = (
            text[:cut]
            + random.choice(("", "\t", "}", "\ufeff", "\0", ": ", "- ", "&a ", "*a ", "# "))
            + text[cut + random.randrange(3) :]
        )
    content = text.encode("utf-8", "replace")
    return content[: random.randrange(len(content) + 1)] if random.random() < 0.02 else content


def _mutated_text(text: str, random: Random) -> bytes:
    lines = text.split("\n")
    for _ in range(random.choice((1, 1, 2, 5, 20))):
        index = random.randrange(len(lines))
        change = random.randrange(7)
        if change == 0:
            lines[index : index + random.choice((1, 3, len(lines)))] = []
        elif change == 1:
            lines.insert(index, lines[index])
        elif change == 2:
            words = lines[index].split(" ")
            words[random.randrange(len(words))] = random.choice((*_TEXTS, *map(str, _NUMBERS)))
            lines[index] = " ".join(words)
        elif change == 3:
            lines[index] = lines[index][: random.randrange(len(lines[index]) + 1)]
        elif change == 4:
            lines[index] = "".join(random.choice("09") if c.isdigit() and random.random() < 0.5 else c for c in lines[index])
        elif change == 5:
            lines[index] = lines[index] * random.choice((2, 50))
        else:
            lines[index] = lines[index].replace(" ", random.choice(("\t", "", "  ", "\u00a0")))
        lines = lines or [""]
    return "\n".join(lines).encode("utf-8", "replace")
