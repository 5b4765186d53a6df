"""Sentences that hold for every pool of a kind: the names of pods and the paths in the stack file are filled in where they are presented."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from infra.diagnosis import Diagnosis, Severity
from infra.offers import Offer
from infra.plan.placement import Load
from infra.plan.pod_shape import PodShape


@dataclass(frozen=True)
class PodNames:
    """What the pods of one shape are called, and where their model stands in the stack file (`models[0]`)."""

    name: str
    path: str


@dataclass(frozen=True, kw_only=True)
class PoolNames:
    """Where a pool stands in the stack file (`nodePools[0]`), and the names of its pods in the order of their shapes."""

    path: str
    pods: tuple[PodNames, ...]


@dataclass(frozen=True)
class PodName:
    """The name of a pod, by the position of its shape."""

    position: int

    def of(self, names: PoolNames) -> str:
        return names.pods[self.position].name


@dataclass(frozen=True)
class PoolPath:
    """The path of the pool."""

    def of(self, names: PoolNames) -> str:
        return names.path


@dataclass(frozen=True)
class Message:
    """A text with names left open."""

    parts: tuple[str | PodName | PoolPath, ...] = ()

    @classmethod
    def of(cls, *parts: str | PodName | PoolPath | Message) -> Message:
        return cls(tuple(piece for part in parts for piece in (part.parts if isinstance(part, Message) else (part,))))

    def joined(self, messages: Iterable[Message]) -> Message:
        """The messages one after the other with this one between them, as str.join."""
        pieces = [piece for message in messages for piece in (self, message)]
        return Message.of(*pieces[1:])

    def worded(self, names: PoolNames) -> str:
        return "".join(part if isinstance(part, str) else part.of(names) for part in self.parts)


@dataclass(frozen=True, kw_only=True)
class Location:
    """Where a value stands in the stack file: `field` below the pool, or below the model of the pod at position `pod`."""

    field: str = ""
    pod: int | None = None

    def path(self, names: PoolNames) -> str:
        above = names.path if self.pod is None else names.pods[self.pod].path
        return f"{above}.{self.field}" if self.field else above


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A diagnosis of a pool with names left open.

    Offers' paths begin at `pool`, at `model` (the location's) or at `model1`, the model at that position. `remedy` is what else can be done.
    """

    location: Location
    code: str
    message: Message
    severity: Severity = "error"
    offers: tuple[Offer, ...] = ()
    remedy: Message = Message()

    @classmethod
    def below_pool(cls, diagnosis: Diagnosis) -> Finding:
        """A diagnosis whose path is a field of the pool."""
        return cls(
            location=Location(field=diagnosis.path),
            code=diagnosis.code,
            message=Message.of(diagnosis.message),
            severity=diagnosis.severity,
            offers=diagnosis.offers,
            remedy=Message.of(diagnosis.remedy) if diagnosis.remedy else Message(),
        )

    def with_more(self, *parts: str | PodName | PoolPath | Message) -> Finding:
        return replace(self, message=Message.of(self.message, *parts))

    def worded(self, names: PoolNames) -> Diagnosis:
        places = {"pool": names.path, **{f"model{number}": pod.path for number, pod in enumerate(names.pods)}}
        if self.location.pod is not None:
            places["model"] = names.pods[self.location.pod].path
        return Diagnosis(
            self.location.path(names),
            self.code,
            self.message.worded(names),
            severity=self.severity,
            remedy=self.remedy.worded(names),
            offers=self.offers,
        ).placed(**places)


def warning(location: Location, code: str, *parts: str | PodName | PoolPath | Message, offers: tuple[Offer, ...] = ()) -> Finding:
    return Finding(location=location, code=code, message=Message.of(*parts), severity="warning", offers=offers)


def described(shapes: Sequence[PodShape], load: Load) -> Message:
    """The pods of a load: `2 pods of llama-70b (4 GPUs each) and 1 pod of qwen (8 GPUs)`."""
    pods = []
    for position, (count, shape) in enumerate(zip(load, shapes, strict=True)):
        if count:
            gpus = f"{shape.gpus} GPU{'s' if shape.gpus != 1 else ''}{' each' if count > 1 else ''}"
            pods.append(Message.of(f"{count} pod{'s' if count != 1 else ''} of ", PodName(position), f" ({gpus})"))
    return Message.of(" and ").joined(pods) if pods else Message.of("nothing")
