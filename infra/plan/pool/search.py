"""Tries kubelet configurations, strictest topology policy first, until one is proven to admit every planned pod in any order."""

from __future__ import annotations

from dataclasses import dataclass, replace

from infra.kubelet import KubeletRefuses
from infra.plan.model.kubelet import KubeletPlan
from infra.plan.placement import NodeCapacity, Placement, spread
from infra.plan.pool.admission_proof import AdmissionProof, prove_admission
from infra.plan.pool.candidate import CandidateConfiguration, policies_to_try
from infra.plan.pool.candidates import candidates
from infra.plan.pool.failures import Failure, conflicts_of, no_room, will_not_start
from infra.plan.pool.gpu_pool import GpuPool, capacity_of, start_kubelet


@dataclass(frozen=True, kw_only=True)
class ProvenConfiguration:
    """A configuration that is proven, and one placement of all pods. `dropped` are the failures of candidates with the same topology policy before it."""

    candidate: CandidateConfiguration
    kubelet: KubeletPlan
    capacity: NodeCapacity
    placement: Placement
    proof: AdmissionProof
    dropped: tuple[Failure, ...] = ()


def search(pool: GpuPool) -> tuple[ProvenConfiguration | None, list[Failure]]:
    """The first configuration that is proven, and the failures before it: one for each stricter policy, or those of the policy that the user fixed."""
    failures: list[Failure] = []
    policies, _ = policies_to_try(pool)
    for policy in policies:
        of_policy: list[Failure] = []
        dropped: list[Failure] = []
        for candidate in candidates(pool, policy):
            outcome = _prove_candidate(pool, candidate)
            if isinstance(outcome, ProvenConfiguration):
                return replace(outcome, dropped=tuple(dropped)), failures
            if any(failure.final for failure in outcome):
                return None, outcome
            of_policy = of_policy or outcome
            dropped += [replace(failure, memory_policy=candidate.memory_policy) for failure in outcome]
        failures += of_policy
    return None, failures


def _prove_candidate(pool: GpuPool, candidate: CandidateConfiguration) -> ProvenConfiguration | list[Failure]:
    kubelet = candidate.completing(pool)
    try:
        started = start_kubelet(pool, kubelet)
    except KubeletRefuses as refusal:
        return [will_not_start(kubelet, refusal)]
    capacity = capacity_of(pool, started)
    placement = spread(candidate.shapes, capacity, pool.nodes)
    if placement.unplaced:
        return no_room(pool, candidate, capacity, placement.unplaced)
    conflicts = conflicts_of(pool, candidate, kubelet)
    if conflicts:
        return conflicts
    proof = prove_admission(pool, candidate, kubelet, at_bound=started)
    if isinstance(proof, Failure):
        return [proof]
    return ProvenConfiguration(candidate=candidate, kubelet=kubelet, capacity=capacity, placement=placement, proof=proof)
