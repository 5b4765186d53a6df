"""Facts as data: accelerators, node shapes, models, images and charts. Nothing is loaded before it is asked for."""

from __future__ import annotations


def pinned_image(name: str) -> str:
    """The reference of a pinned image, with its digest where it is known; KeyError for an id that pins.yaml does not have as an image."""
    from infra.catalog.load import pins

    pin = pins()[name]
    if pin.kind != "image":
        raise KeyError(f"{name} is a {pin.kind}")
    return pin.pinned_reference
