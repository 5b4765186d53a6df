"""What the CPU and memory manager make of pods that name resources of the pod level (spec.resources)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLevelTreatment:
    """`managed`: one set of CPUs and memory for the pod (gate PodLevelResourceManagers). `skipped`: such pods get nothing of their own.

    Where neither holds, the managers look at the containers as in any other pod.
    """

    managed: bool
    skipped: bool
