"""How a kubelet can end other than by an answer."""

from __future__ import annotations


class KubeletRefuses(Exception):
    """The kubelet does not start. `stage` is the step that stops it, `errors` why (only `validate` knows several)."""

    def __init__(self, stage: str, errors: tuple[str, ...]) -> None:
        self.stage = stage
        self.errors = errors
        super().__init__(f"the kubelet stops at {stage}: " + "; ".join(errors))


class KubeletPanics(Exception):
    """The kubelet process would crash at this pod."""


class KubeletHangs(Exception):
    """The kubelet's own code would not come to an end here, or only after hours."""


class AllocationError(Exception):
    """A manager could not give what the pod was admitted for; `reason` is what the pod's status shows."""

    reason = "UnexpectedAdmissionError"

    @property
    def message(self) -> str:
        return f"Allocate failed due to {self}, which is unexpected"


class SMTAlignmentError(AllocationError):
    reason = "SMTAlignmentError"

    @property
    def message(self) -> str:
        return str(self)


class EmptyPodSharedPoolError(SMTAlignmentError):
    reason = "EmptyPodSharedPoolError"
