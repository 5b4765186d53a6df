"""A memory estimate in sentences."""

from __future__ import annotations

from infra.plan.architecture.precision import resolve_dtype, resolve_quantization
from infra.plan.memory.profile import measured_error
from infra.plan.memory.types import MemoryEstimate
from infra.units import GIB, KIB

GPUS_OF_A_NODE = 8
LARGEST_PCIE_GROUP = 2  # vLLM's custom all-reduce needs NVLink or xGMI between all pairs above two ranks


def gib(size_bytes: float) -> str:
    return f"{size_bytes / GIB:.2f} GiB"


def memory_reasons(estimate: MemoryEstimate) -> tuple[str, ...]:
    """One sentence a number, the verdict's first."""
    return (verdict_sentence(estimate), *(_parts(estimate)), *_consequences(estimate))


def verdict_sentence(estimate: MemoryEstimate) -> str:
    """Why it fits, does not, or may not."""
    failing = [check.failure for check in estimate.checks if not check.holds_low]
    if not failing:
        return (
            f"fits: one request of {estimate.max_model_len:,} tokens needs {gib(estimate.needed_bytes)} of KV cache,"
            f" and at least {gib(estimate.available.low)} are left."
        )
    if estimate.verdict == "marginal":
        return f"marginal: {'; '.join(failing)}; it may start, but no plan should rely on it."
    return f"refused: {'; '.join(failing)}."


def _parts(estimate: MemoryEstimate) -> tuple[str, ...]:
    stage, architecture, engine = estimate.fullest, estimate.architecture, estimate.engine
    quantization = resolve_quantization(architecture, estimate.options.quantization)
    weights_in = quantization.name if quantization is not None else resolve_dtype(architecture, estimate.options.dtype)
    phases = {
        "layers": f"{estimate.max_num_batched_tokens:,} batched tokens in the widest layer",
        "sampler": f"the sampler with the logits of {estimate.max_num_seqs:,} sequences over {architecture.vocab:,} tokens of vocabulary, on every rank",
        "vision encoder": "the largest image or video in the vision encoder",
    }
    split = estimate.sizes.tensor_parallel_size * estimate.sizes.pipeline_parallel_size
    sentences = [
        f"budget {gib(estimate.requested.expected)}: {gib(estimate.total_bytes)} that torch sees on {estimate.accelerator.id}"
        f" x gpu_memory_utilization {estimate.gpu_memory_utilization:g}.",
        f"weights {gib(stage.weights.expected)}: {weights_in}, the fullest of {split} {'ranks' if split > 1 else 'rank'}"
        + (f", {estimate.options.cpu_offload_gib:g} GiB of it in host memory." if estimate.options.cpu_offload_gib else "."),
        f"activations {gib(stage.activation.peak.expected)}: {phases[stage.activation.phase]}.",
        f"outside torch {gib(stage.communication.expected)}: "
        + (
            "runtime and workspaces."
            if estimate.sizes.tensor_parallel_size == 1
            else "runtime, workspaces and the collective library's buffers."
        ),
    ]
    if engine.graphs_in_budget:
        sentences.append(
            f"graphs {gib(stage.graphs.expected)}: vLLM {estimate.vllm_version} takes its estimate off the budget."
            if stage.graphs.expected
            else "graphs 0 GiB: enforce_eager captures none."
        )
    else:
        sentences.append(f"graphs are not in the budget of vLLM {estimate.vllm_version}; they take memory beside it.")
    return tuple(sentences)


def _consequences(estimate: MemoryEstimate) -> tuple[str, ...]:
    architecture = estimate.architecture
    cache = f"KV cache {estimate.kv_bytes_per_token / KIB:g} KiB a token and GPU, blocks of {estimate.block_size} tokens"
    if architecture.is_mla and estimate.sizes.tensor_parallel_size > 1:
        cache += "; every tensor-parallel rank keeps the latent whole"
    elif not architecture.is_mla and estimate.sizes.tensor_parallel_size > architecture.kv_heads:
        cache += f"; with {architecture.kv_heads} KV heads no more than {architecture.kv_heads} ranks shrink it"
    sentences = [f"{cache}."]
    longest, asked = architecture.max_position_embeddings, estimate.max_model_len
    if longest and asked > longest:
        sentences.append(
            f"{asked:,} tokens are more than the {longest:,} of the model's config.json: vLLM wants rope scaling (YaRN) for them."
        )
    shorter = estimate.largest_max_model_len
    if not estimate.fits and shorter and shorter < asked and _only_cache_fails(estimate):
        sentences.append(f"the largest max_model_len that starts for certain is {shorter:,}.")
    sentences += _links(estimate)
    error = measured_error()
    sentences.append(
        f"measured error of the available cache over {error.starts} real starts: median {error.median * 100:.1f} %, nine in ten within"
        f" {error.ninetieth * 100:.1f} %."
    )
    return tuple(sentences)


def _links(estimate: MemoryEstimate) -> list[str]:
    """What the ranks' links mean for the asked size."""
    ranks, fabric = estimate.sizes.tensor_parallel_size, estimate.accelerator.fabric
    domain = max(fabric.domain_size or 1, GPUS_OF_A_NODE)
    if ranks > domain:
        return [
            f"{ranks} tensor-parallel ranks are more than the {domain} GPUs of a node or link domain: collectives of every layer would cross the network;"
            f" tensor parallel {domain} x pipeline parallel {-(-ranks // domain)} does not."
        ]
    if ranks > LARGEST_PCIE_GROUP and not fabric.is_fast:
        return [
            f"{ranks} ranks over PCIe: vLLM turns its custom all-reduce off above {LARGEST_PCIE_GROUP}; pipeline parallel asks less of the links."
        ]
    return []


def _only_cache_fails(estimate: MemoryEstimate) -> bool:
    return all(check.holds_low for check in estimate.checks[1:])
