"""Tell whether a model fits a GPU, how much context and how many requests it leaves room for, and which size would do.

The estimate is a range, judged at its low end: `fits`, `marginal` (it may start; no plan should rely on it) or `refused`. What is left out is
vLLM's default for its version and the device. Exit status: 0 it fits, 1 it does not for certain, 2 the input is wrong.

A model that the catalog does not know is given by its config.json: --config FILE, where FILE is a config.json, or a map with
`modelConfig:` (and, if wanted, the sizes of a stack file's model: tensorParallelSize, maxModelLen, ...), or a stack file with --model NAME.
With --from-hub it is fetched, once.
A GPU that the catalog does not know is given by --gpu-memory-gib (what torch reports as total_memory) and --gpu-vendor.

examples:
  python -m infra fit --model Llama-3.3-70B-Instruct --gpu h100-sxm5-80gb --tp 4 --max-model-len 32768
  python -m infra fit --model openai/gpt-oss-120b --gpu MI300X --gpu-memory-utilization 0.9 --format json
  python -m infra fit --model Qwen/Qwen2.5-VL-72B-Instruct --from-hub --gpu h100-sxm5-80gb --tp 4
  python -m infra fit --config config.json --gpu l40s --tp 2 --kv-cache-dtype fp8 --vllm-version 0.19.0
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING, Any, get_args

from infra.catalog.confidence import accelerator_warnings, model_warnings
from infra.catalog.names import find_accelerator, find_model, with_memory
from infra.catalog.types import Accelerator, AcceleratorMemory, Fabric, Vendor
from infra.cli.from_hub import add_from_hub, fetch_missing
from infra.diagnosis import Diagnosis, shown
from infra.errors import ConfigError, NumawiseError, PlanError
from infra.plan.architecture.partition import ParallelSizes
from infra.plan.architecture.reading import architecture_of, from_config_json
from infra.plan.architecture.types import Architecture
from infra.plan.memory.block_size import block_size_refusal
from infra.plan.memory.estimate import estimate_memory
from infra.plan.memory.options import EngineOptions
from infra.plan.memory.profile import is_known_era, known_eras
from infra.plan.parallelism.fitting import LARGEST_DOMAIN, size_sentences
from infra.plan.parallelism.rules import (
    MOST_GPUS,
    expert_parallel_refusal,
    pipeline_parallel_refusals,
    tensor_parallel_refusals,
    valid_tensor_parallel_sizes,
)
from infra.report.document import json_text
from infra.report.fit import fit_as_json
from infra.report.fit_table import fit_as_text

if TYPE_CHECKING:
    from infra.cli.fit_file import ModelFile

# what the estimate calls an input, and the option that gives it
_OPTION_OF = {"gpu": "--gpu", "dtype": "--dtype", "quantization": "--quantization", "kvCacheDtype": "--kv-cache-dtype"}
_MOST = 2**62
SMALLEST_GPU_GIB, LARGEST_GPU_GIB = 0.5, 99_999
_MULTIPLES = {"k": 1000, "m": 10**6, "g": 10**9, "K": 1024, "M": 1024**2, "G": 1024**3}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", metavar="M", help="a model of the catalog, with or without its organisation")
    add_from_hub(parser)
    parser.add_argument("--gpu", metavar="SKU", help="an accelerator: catalog id, driver name, node label value or common name")
    parser.add_argument("--config", metavar="FILE", help="a config.json, a map with modelConfig, or a stack file (see above)")
    parser.add_argument("--tp", metavar="N", help="tensor parallel size (default 1)")
    parser.add_argument("--pp", metavar="N", help="pipeline parallel size (default 1)")
    parser.add_argument("--gpu-memory-utilization", metavar="U", help="share of the memory that vLLM may use (default: vLLM's)")
    parser.add_argument("--max-model-len", metavar="L", help="context in tokens, 32768 or 32K (default: the model's)")
    parser.add_argument("--max-num-seqs", metavar="S", help="sequences in a batch")
    parser.add_argument("--max-num-batched-tokens", metavar="B", help="tokens in a batch")
    parser.add_argument("--block-size", metavar="K", help="tokens in a cache block")
    parser.add_argument("--dtype", metavar="D", help="auto, bfloat16, float16 or float32")
    parser.add_argument("--quantization", metavar="Q", help="for a full-precision checkpoint: fp8, bitsandbytes, ...")
    parser.add_argument("--kv-cache-dtype", metavar="D", help="auto, fp8, ...")
    parser.add_argument("--vllm-version", metavar="V", help="vLLM's version (default: the newest known)")
    parser.add_argument("--enable-expert-parallel", action="store_true", help="spread whole experts over the ranks")
    parser.add_argument("--enforce-eager", action="store_true", help="without CUDA or HIP graphs")
    parser.add_argument("--gpu-memory-gib", metavar="G", help="memory that torch sees on the GPU, instead of the catalog's")
    parser.add_argument("--gpu-vendor", choices=get_args(Vendor), help="vendor of a GPU that the catalog does not know")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="text for people, json for programs")


@dataclass(frozen=True, kw_only=True)
class FitRequest:
    """A model, a GPU, and the sizes and options that were given."""

    architecture: Architecture
    accelerator: Accelerator
    sizes: ParallelSizes
    options: EngineOptions
    warnings: tuple[Diagnosis, ...]


def run(args: argparse.Namespace) -> int:
    request = read_request(args)
    try:
        estimate = estimate_memory(request.architecture, request.accelerator, request.sizes, request.options)
    except NumawiseError as error:
        raise type(error)(replace(problem, path=_OPTION_OF.get(problem.path, problem.path)) for problem in error.problems) from None
    size_reasons = size_sentences(estimate)
    if args.format == "json":
        print(json_text(fit_as_json(estimate, size_reasons, request.warnings)))
    else:
        print(fit_as_text(estimate, size_reasons, request.warnings))
    return 0 if estimate.fits else 1


def read_request(args: argparse.Namespace) -> FitRequest:
    """The request, or a ConfigError or PlanError with everything that is wrong with it."""
    problems: list[Diagnosis] = []
    given = _from_file(args)
    sizes, options = _sizes_and_options(args, given.options if given else {}, problems)
    architecture = _architecture(args, given.config if given else None, given.name if given else "", problems)
    accelerator = _accelerator(args, given.gpu if given else None, problems)
    if architecture is not None:
        problems += _size_problems(architecture, sizes, options.quantization)
    if architecture is not None and accelerator is not None and options.block_size:
        refusal = block_size_refusal(architecture, accelerator, options.block_size)
        problems += [_invalid("--block-size", refusal.sentence)] if refusal else []
    if problems or architecture is None or accelerator is None:
        raise (PlanError if all(p.code == "InvalidParallelSize" for p in problems) else ConfigError)(problems)
    warnings = [*accelerator_warnings(accelerator, "--gpu")]
    if not (given and given.config is not None):
        warnings += model_warnings(find_model(architecture.name), "--model")
    return FitRequest(architecture=architecture, accelerator=accelerator, sizes=sizes, options=options, warnings=tuple(warnings))


def _from_file(args: argparse.Namespace) -> ModelFile | None:
    if args.config is None:
        return None
    # most questions name a model of the catalog, and need none of the stack file's sections
    from infra.cli.fit_file import read_model_file

    return read_model_file(args.config, args.model)


def _sizes_and_options(
    args: argparse.Namespace, given: dict[str, Any], problems: list[Diagnosis]
) -> tuple[ParallelSizes, EngineOptions]:
    def whole(option: str, name: str) -> int | None:
        text = getattr(args, option.replace("-", "_"))
        return given.get(name) if text is None else _whole(text, f"--{option}", problems)

    utilization = given.get("gpu_memory_utilization")
    if args.gpu_memory_utilization is not None:
        utilization = _number(args.gpu_memory_utilization, "--gpu-memory-utilization", problems)
        if utilization is not None and not 0 < utilization <= 1:
            problems.append(
                _invalid("--gpu-memory-utilization", f"is {utilization:g}; vLLM takes more than 0 and at most 1, for example 0.9.")
            )
    version = args.vllm_version if args.vllm_version is not None else given.get("vllm_version")
    problems += _version_problems(version)
    sizes = ParallelSizes(
        tensor_parallel_size=whole("tp", "tensor_parallel_size") or 1,
        pipeline_parallel_size=whole("pp", "pipeline_parallel_size") or 1,
        expert_parallel=args.enable_expert_parallel or bool(given.get("expert_parallel")),
    )
    options = EngineOptions(
        gpu_memory_utilization=utilization,
        max_model_len=whole("max-model-len", "max_model_len"),
        max_num_seqs=whole("max-num-seqs", "max_num_seqs"),
        max_num_batched_tokens=whole("max-num-batched-tokens", "max_num_batched_tokens"),
        block_size=whole("block-size", "block_size"),
        dtype=args.dtype or given.get("dtype"),
        quantization=args.quantization or given.get("quantization"),
        kv_cache_dtype=args.kv_cache_dtype or given.get("kv_cache_dtype"),
        vllm_version=version,
        enforce_eager=args.enforce_eager,
    )
    batched, sequences = options.max_num_batched_tokens, options.max_num_seqs
    if batched and sequences and batched < sequences:
        problems.append(
            _invalid(
                "--max-num-batched-tokens",
                f"is {batched}, below --max-num-seqs {sequences}: vLLM refuses that; use at least {sequences}.",
            )
        )
    return sizes, options


def _version_problems(version: str | None) -> list[Diagnosis]:
    if version is None:
        return []
    try:
        known = is_known_era(version)
    except ConfigError as error:
        return [problem.at("--vllm-version") for problem in error.problems]
    message = f"is {version.strip()}, whose memory is not known; known are {', '.join(known_eras())}."
    return [] if known else [Diagnosis(path="--vllm-version", code="UnknownVersion", message=message)]


def _whole(text: str, option: str, problems: list[Diagnosis]) -> int | None:
    """A whole number above 0, also as vLLM reads them: 32k is 32,000 and 32K is 32,768."""
    digits, multiple = (text[:-1], _MULTIPLES[text[-1]]) if text[-1:] in _MULTIPLES else (text, 1)
    try:
        value = float(digits) * multiple
    except ValueError:
        value = 0.0
    if not 1 <= value < _MOST or value != int(value):  # also what is no number, and infinity
        problems.append(_invalid(option, f"is {shown(text)}; a whole number of at least 1 is expected."))
        return None
    return int(value)


def _number(text: str, option: str, problems: list[Diagnosis]) -> float | None:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not isfinite(value):
        problems.append(_invalid(option, f"is {shown(text)}; a number is expected."))
        return None
    return value


def _invalid(option: str, message: str) -> Diagnosis:
    return Diagnosis(path=option, code="InvalidValue", message=message)


def _architecture(args: argparse.Namespace, config: Any, name: str, problems: list[Diagnosis]) -> Architecture | None:
    try:
        if config is not None:
            return from_config_json(config, name=name or args.model or "the model", path="modelConfig")
        if name or args.model:
            if args.from_hub:
                fetch_missing([(name or args.model, "--model")])
            return architecture_of(find_model(name or args.model, "--model"))
    except ConfigError as error:
        problems += error.problems
        return None
    problems.append(
        Diagnosis(
            path="--model",
            code="MissingOption",
            message="is missing; name a model of the catalog, or give its config.json with --config.",
        )
    )
    return None


def _accelerator(args: argparse.Namespace, from_file: str | None, problems: list[Diagnosis]) -> Accelerator | None:
    memory_gib = None
    if args.gpu_memory_gib is not None:
        memory_gib = _number(args.gpu_memory_gib, "--gpu-memory-gib", problems)
        if memory_gib is not None and not SMALLEST_GPU_GIB <= memory_gib <= LARGEST_GPU_GIB:
            problems.append(
                _invalid(
                    "--gpu-memory-gib",
                    f"is {memory_gib:g}; what torch reports as total_memory is expected, {SMALLEST_GPU_GIB} to {LARGEST_GPU_GIB} GiB, for example 79.1.",
                )
            )
        if memory_gib is None or (problems and problems[-1].path == "--gpu-memory-gib"):
            return None
    name = args.gpu or from_file
    if name is None and memory_gib is not None and args.gpu_vendor:
        return _inline_accelerator(f"{args.gpu_vendor} GPU of {memory_gib:g} GiB", args.gpu_vendor, memory_gib)
    if name is None and (memory_gib is not None or args.gpu_vendor):
        given, missing = ("--gpu-memory-gib", "--gpu-vendor") if memory_gib is not None else ("--gpu-vendor", "--gpu-memory-gib")
        message = f"is missing beside {given}; a GPU that --gpu does not name is given by both."
        problems.append(Diagnosis(path=missing, code="MissingOption", message=message))
        return None
    if name is None:
        problems.append(
            Diagnosis(
                path="--gpu",
                code="MissingOption",
                message="is missing; name an accelerator, for example h100-sxm5-80gb or MI300X, or give --gpu-memory-gib and --gpu-vendor.",
            )
        )
        return None
    try:
        known = find_accelerator(name, "--gpu")
    except ConfigError as error:
        if memory_gib is not None and args.gpu_vendor and error.problems[0].code == "UnknownAccelerator":
            return _inline_accelerator(name, args.gpu_vendor, memory_gib)
        hint = " Or give it inline: --gpu-memory-gib 23.6 (what torch reports as total_memory) and --gpu-vendor nvidia|amd."
        problems += [replace(problem, message=problem.message + hint) for problem in error.problems]
        return None
    if args.gpu_vendor and args.gpu_vendor != known.vendor:
        problems.append(
            _invalid("--gpu-vendor", f"is {args.gpu_vendor}, but {known.id} is {known.vendor}'s; leave one of them out.")
        )
        return None
    return known if memory_gib is None else with_memory(known, AcceleratorMemory(torch_gib=memory_gib))


def _inline_accelerator(name: str, vendor: str, memory_gib: float) -> Accelerator:
    """A device of which only vendor and memory are known: reached over PCIe."""
    return Accelerator(
        id=name,
        vendor=vendor,  # type: ignore[arg-type]
        driver_name=name,
        architecture="",
        memory=AcceleratorMemory(torch_gib=memory_gib),
        fabric=Fabric(kind="pcie"),
        confidence="high",
    )


def _size_problems(architecture: Architecture, sizes: ParallelSizes, quantization: str | None) -> list[Diagnosis]:
    tensor = sizes.tensor_parallel_size
    try:
        refusals = [
            ("--tp", refusal)
            for refusal in tensor_parallel_refusals(
                architecture, tensor, quantization=quantization, expert_parallel=sizes.expert_parallel
            )
        ]
        valid = valid_tensor_parallel_sizes(
            architecture, quantization, max(LARGEST_DOMAIN, min(tensor, MOST_GPUS)), expert_parallel=sizes.expert_parallel
        )
    except ConfigError as error:
        return [replace(problem, path=_OPTION_OF.get(problem.path, problem.path)) for problem in error.problems]
    refusals += [("--pp", refusal) for refusal in pipeline_parallel_refusals(architecture, sizes.pipeline_parallel_size)]
    if sizes.expert_parallel:
        refusal = expert_parallel_refusal(architecture)
        refusals += [("--enable-expert-parallel", refusal)] if refusal else []
    remedy = f" Valid tensor parallel sizes: {', '.join(map(str, valid))}."
    return [
        Diagnosis(path=option, code="InvalidParallelSize", message=refusal.sentence + (remedy if option == "--tp" else ""))
        for option, refusal in refusals
    ]
