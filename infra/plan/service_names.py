"""Names of Services: ours, and those that the LeaderWorkerSet controller makes for each replica of a model over several nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from infra.diagnosis import Diagnosis

# A StatefulSet of the controller is called MODEL-REPLICA, and its pods carry the label controller-revision-hash: that name, a
# dash and up to ten characters, 63 in all (kubernetes/kubernetes, pkg/controller/history/controller_history.go).
_REVISION_CHARACTERS = 11
_LABEL_CHARACTERS = 63
_REPLICA = re.compile(r"(.+)-(?:0|[1-9]\d*)")


@dataclass(frozen=True, kw_only=True)
class NamedModel:
    """What decides about a model's Services. `path`: models[0]."""

    path: str
    name: str
    namespace: str
    replicas: int
    pods_per_replica: int


def service_name(model_name: str) -> str:
    """A Service's name has to begin with a letter, a model's need not."""
    if model_name[0].isalpha():
        return model_name
    return f"vllm-{model_name}"[:63].rstrip("-")


def service_name_problems(models: Sequence[NamedModel]) -> Iterator[Diagnosis]:
    """Models whose Services would meet under one name in one namespace, and names that a group of pods cannot have."""
    taken: dict[tuple[str, str], NamedModel] = {}
    for model in models:
        name = service_name(model.name)
        other = taken.setdefault((model.namespace, name), model)
        if other is not model and other.name != model.name:
            yield Diagnosis(
                f"{model.path}.name",
                "ServiceNameTaken",
                f"the Service of {model.name} would be called {name}, as that of {other.name} ({other.path}) in namespace {model.namespace}; rename one of the two",
            )
    groups = {(model.namespace, model.name): model for model in models if model.pods_per_replica > 1}
    for group in groups.values():
        yield from _name_of_group(group)
    for model in models:
        yield from _name_of_a_replica(model, groups)


def _name_of_group(model: NamedModel) -> Iterator[Diagnosis]:
    replica = f"-{max(model.replicas - 1, 0)}"
    longest = _LABEL_CHARACTERS - _REVISION_CHARACTERS - len(replica)
    if not model.name[0].isalpha():
        yield Diagnosis(
            f"{model.path}.name",
            "GroupNameRefused",
            f"{model.name} begins with a digit, and a replica over {model.pods_per_replica} nodes is a LeaderWorkerSet, whose name has to begin with a letter; "
            f"call it {service_name(model.name)[:longest].rstrip('-')}",
        )
    elif len(model.name) > longest:
        yield Diagnosis(
            f"{model.path}.name",
            "GroupNameRefused",
            f"has {len(model.name)} characters, and the name of a model over {model.pods_per_replica} nodes with {model.replicas} replicas at most {longest}; shorten it",
        )


def _name_of_a_replica(model: NamedModel, groups: Mapping[tuple[str, str], NamedModel]) -> Iterator[Diagnosis]:
    """The controller makes a headless Service MODEL-0, MODEL-1, ... for the replicas of a group; more of them come with more replicas."""
    found = _REPLICA.fullmatch(service_name(model.name))
    group = groups.get((model.namespace, found[1])) if found else None
    if group is not None:
        yield Diagnosis(
            f"{model.path}.name",
            "ServiceNameTaken",
            f"{model.name} is what the LeaderWorkerSet controller calls the Service of a replica of {group.name} ({group.path}), which spans "
            f"{group.pods_per_replica} nodes; choose a name that does not end in a number",
        )
