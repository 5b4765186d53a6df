"""Advice is tried before it is said: each offer of an error or a warning is put into the stack document, and the document is planned again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from infra.config.cluster import StackConfig
from infra.diagnosis import Diagnosis
from infra.offers import Change, Offer

# A plan that fails costs at most so many more plans of a pool each; what is not tried is not offered.
_MOST_TRIALS, _MOST_TRIALS_A_DIAGNOSIS, _MOST_OFFERS = 30, 8, 3
# A pool of more models takes too long to plan again and again.
_MOST_MODELS = 24


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What planning a document came to: with problems there is no plan."""

    problems: Sequence[Diagnosis]
    warnings: Sequence[Diagnosis]

    def keys(self, severity: str) -> frozenset[tuple[str, str]]:
        return frozenset((one.path, one.code) for one in (self.problems if severity == "error" else self.warnings))


class Trials:
    """Tries offers on one stack. `attempt` plans a configuration; it is asked for one pool and its models at a time."""

    def __init__(self, config: StackConfig, outcome: Outcome, attempt: Callable[[StackConfig], Outcome]) -> None:
        self._config, self._outcome, self._attempt = config, outcome, attempt
        self._left = _MOST_TRIALS

    def tried(self, diagnoses: Iterable[Diagnosis]) -> tuple[Diagnosis, ...]:
        """The diagnoses with those of their offers that work: the pool plans, or one problem of several is gone and no new one has come."""
        return tuple(replace(one, offers=tuple(self._that_work(one))[:_MOST_OFFERS]) if one.offers else one for one in diagnoses)

    def _that_work(self, diagnosis: Diagnosis) -> Iterator[Offer]:
        pool = _Part.of(self._config, diagnosis.path)
        if pool is None or len(pool.indices["models"]) > _MOST_MODELS:
            return
        before = self._outcome.keys(diagnosis.severity)
        wrong = frozenset(self._outcome.keys("error"))
        done: set[str] = set()
        found = 0
        for offer in diagnosis.offers[: _MOST_TRIALS_A_DIAGNOSIS * 2]:
            if offer.kind in done or found >= _MOST_OFFERS:
                continue
            if not self._left:
                return
            self._left -= 1
            outcome = pool.with_offer(offer, self._attempt)
            if outcome is None:
                continue
            errors = pool.in_document(outcome.keys("error"))
            others = {key for key in wrong if diagnosis.severity == "error" and key[0] == diagnosis.path}
            if not errors <= wrong - others:
                continue
            if diagnosis.severity != "error":
                same_path = {key for key in pool.in_document(outcome.keys("warning")) if key[0] == diagnosis.path}
                if (diagnosis.path, diagnosis.code) in same_path or not same_path <= before:
                    continue
            yield offer
            found += 1
            if offer.kind:
                done.add(offer.kind)


@dataclass(frozen=True, kw_only=True)
class _Part:
    """One pool with its models as a document of its own; `indices` are where its lists' entries stand in the whole one."""

    document: Mapping[str, Any]
    indices: Mapping[str, Sequence[int]]

    @classmethod
    def of(cls, config: StackConfig, path: str) -> _Part | None:
        """The part that a path lies in; None where it lies in no pool."""
        found = re.match(r"(nodePools|models)\[(\d+)\]", path)
        if found is None:
            return None
        index = int(found[2])
        name = config.node_pools[index].name if found[1] == "nodePools" else config.models[index].node_pool
        pools = [number for number, pool in enumerate(config.node_pools) if pool.name == name]
        models = [number for number, model in enumerate(config.models) if model.node_pool == name]
        part = config.model_copy(
            update={
                "node_pools": tuple(config.node_pools[number] for number in pools),
                "models": tuple(config.models[number] for number in models),
            }
        )
        document = _lists(part.model_dump(by_alias=True, exclude_unset=True))
        return cls(document=document, indices={"nodePools": pools, "models": models})

    def with_offer(self, offer: Offer, attempt: Callable[[StackConfig], Outcome]) -> Outcome | None:
        """What the part comes to with an offer; None where that is no document."""
        inside = tuple(Change(self._inside(change.path), change.value) for change in offer.changes)
        try:
            return attempt(StackConfig.model_validate(replace(offer, changes=inside).applied(self.document)))
        except (ValidationError, LookupError):
            return None

    def _inside(self, path: str) -> str:
        return re.sub(r"^(nodePools|models)\[(\d+)\]", lambda m: f"{m[1]}[{self.indices[m[1]].index(int(m[2]))}]", path)

    def in_document(self, keys: Iterable[tuple[str, str]]) -> frozenset[tuple[str, str]]:
        """Paths of the part as paths of the whole document."""

        def outside(path: str) -> str:
            return re.sub(r"^(nodePools|models)\[(\d+)\]", lambda m: f"{m[1]}[{self.indices[m[1]][int(m[2])]}]", path)

        return frozenset((outside(path), code) for path, code in keys)


def _lists(value: Any) -> Any:
    """YAML's lists for the models' tuples."""
    if isinstance(value, Mapping):
        return {key: _lists(entry) for key, entry in value.items()}
    return [_lists(entry) for entry in value] if isinstance(value, list | tuple) else value
