"""Which vLLM a model's image runs: what the stack file says, else what the image's tag says, else the catalog's pin."""

from __future__ import annotations

import re
from dataclasses import dataclass

from infra.catalog.engine_releases import is_known, known_releases, version_key
from infra.catalog.load import pins
from infra.catalog.types import Pin, Vendor
from infra.catalog.vendors import vendors
from infra.config.models import Model
from infra.diagnosis import Diagnosis
from infra.errors import ConfigError, PlanError
from infra.plan.images import pinned
from infra.plan.memory.profile import known_eras

# v0.11.0, 0.9.2-gpu-py312-cu128, v0.33.0-x86_64: vLLM has three numbers, or begins with 0. 25.09-py3 is a vendor's own calendar.
_TAG = re.compile(r"v?(\d+\.\d+\.\d+(?:\.\d+)?|0\.\d+)(?:(?:rc|\.post|\.dev|[-+_]).*)?", re.ASCII)
# rocm/vllm: rocm7.0.0_vllm_0.11.1_20251103, rocm6.3.1_instinct_vllm0.8.3_20250410, rocm6.2_mi300_ubuntu20.04_py3.9_vllm_0.6.4
_ROCM_TAG = re.compile(r"(?:.*[_-])?vllm[_-]?v?(\d+\.\d+(?:\.\d+){0,2})(?:[-_.rp].*)?", re.ASCII)
# Whose flags are those of the release that the tag names.
_OFFICIAL = re.compile(r"(?:.*/)?(?:vllm/vllm-openai(?:-rocm|-cpu)?|rocm/vllm(?:-dev)?)", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class ServedEngine:
    """The image and the version in it. `own`: an image that is not vLLM's own and may know more flags than its version."""

    image: str
    version: str
    own: bool
    warnings: tuple[Diagnosis, ...] = ()


def served_engine(model: Model, path: str, vendor: Vendor) -> ServedEngine:
    """PlanError where the version cannot be told, is not known here, or contradicts the image's tag."""
    pin = pins()[vendors()[vendor].engine_pin]
    pinned_version = pin.version.removeprefix("v")
    if model.image is None:
        version = pinned_version if model.vllm_version is None else _known(model.vllm_version, f"{path}.vllmVersion")
        return ServedEngine(image=_image_of(pin, version), version=version, own=False)
    image = model.image
    repository, tag, digest = split_image(image)
    named = version_of_tag(tag)
    own = _OFFICIAL.fullmatch(repository) is None
    vllm_named = "vllm" in repository
    warnings: list[Diagnosis] = []
    if model.vllm_version is not None:
        version = _known(model.vllm_version, f"{path}.vllmVersion")
        if named is not None and vllm_named and version_key(named) != version_key(version):
            warnings += _contradiction(named, version, image, path)
    elif named is not None and (vllm_named or is_known(named)):
        version = _known(named, f"{path}.image")
        if not vllm_named:
            warnings.append(_guess(path, f"the tag of {image} is read as vLLM {version}", version))
    elif digest is not None:
        raise PlanError.one(
            "MissingVersion",
            f"{path}.vllmVersion",
            f"is needed beside an image by digest, which names no version: flags, memory and defaults follow it. Write the one in the image, for example {_newest()}",
        )
    else:
        version = pinned_version
        warnings.append(
            _guess(path, f"the tag of {image} names no vLLM version: it is planned as the catalog's {version}", version)
        )
    return ServedEngine(image=image, version=version, own=own, warnings=tuple(warnings))


def _image_of(pin: Pin, version: str) -> str:
    """vLLM's own image of this version: the pin, or another tag of the same repository."""
    same = version_key(version) == version_key(pin.version)
    return pinned(pin.id, mirror=None) if same else f"{pin.reference}:v{version}"


def split_image(image: str) -> tuple[str, str | None, str | None]:
    """Repository with registry, tag, and digest of an image reference."""
    name, _, digest = image.partition("@")
    head, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:
        return name, None, digest or None
    return head, tag, digest or None


def version_of_tag(tag: str | None) -> str | None:
    """The vLLM version that a tag names, without v and without what the build adds; None where it names none."""
    for form in (_ROCM_TAG, _TAG):
        match = form.fullmatch(tag or "")
        if match is not None:
            return match[1]
    return None


def unknown_version(version: str) -> str:
    """Why a version cannot be planned, with what can."""
    oldest = known_releases()[0]
    nearest = oldest if version_key(version) < version_key(oldest) else _newest()
    return f"is vLLM {version}, whose flags, defaults and memory are not known: {', '.join(known_eras(oldest))} are. Write vllmVersion: {nearest} to have it planned as that one"


def _newest() -> str:
    return known_releases()[-1]


def _known(version: str, path: str) -> str:
    try:
        known = is_known(version)
    except ConfigError as error:
        raise PlanError(problem.at(path) for problem in error.problems) from None
    plain = version.strip().removeprefix("v")
    if not known:
        raise PlanError.one("UnknownVersion", path, unknown_version(plain))
    return plain


def _contradiction(named: str, version: str, image: str, path: str) -> list[Diagnosis]:
    if is_known(named):
        raise PlanError.one(
            "VersionContradictsImage",
            f"{path}.vllmVersion",
            f"is {version}, but {image} is vLLM {named}: flags of one may stop the other. Leave vllmVersion out, or write {named}",
        )
    return [_guess(path, f"{image} is vLLM {named}, which is not known here: it is planned as {version}", version)]


def _guess(path: str, what: str, version: str) -> Diagnosis:
    return Diagnosis.warning(
        path=f"{path}.image",
        code="VersionNotCertain",
        message=f"{what}; where that is another, write vllmVersion (here {version}), since flags and memory follow it",
    )
