"""Which image each pod of a stack runs: the catalog's pin, or the stack file's own, pulled from the stack's mirror where it has one."""

from __future__ import annotations

from infra.catalog.load import pins

_DOCKER_HUB = "docker.io"


def pinned(pin: str, *, mirror: str | None) -> str:
    """The catalog's image by the name of its pin, as the pods of the stack pull it."""
    return mirrored(pins()[pin].pinned_reference, mirror)


def mirrored(image: str, mirror: str | None) -> str:
    """`image` as it lies in the mirror: REGISTRY/REPOSITORY becomes MIRROR/REPOSITORY, tag and digest stay.

    Docker Hub's short names are written out (python -> MIRROR/library/python). What lies in the mirror's own registry stays as it is.
    """
    if mirror is None:
        return image
    mirror = mirror.rstrip("/")
    registry, repository = split_registry(image)
    return image if registry == mirror.split("/")[0] else f"{mirror}/{repository}"


def split_registry(image: str) -> tuple[str, str]:
    """Registry host and the rest of an image; the first component is a host where it has a dot or a port, or is localhost."""
    first, slash, rest = image.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return first, rest
    return _DOCKER_HUB, image if slash else f"library/{image}"
