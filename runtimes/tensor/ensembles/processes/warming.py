"""The warm-up of the members of an ensemble, in its process: requests that each model answers before the process takes
traffic."""

from __future__ import annotations

from runtimes.tensor.backends.base import ModelLoadError
from runtimes.tensor.ensembles.processes.calls import MemberModel, StepCall
from runtimes.tensor.instances.worker import MemberJob
from runtimes.tensor.models.warmup import inference_of
from runtimes.tensor.requests.open_request import message_of


def warm_up(member: MemberJob, model: MemberModel) -> None:
    """Send all warm-up requests of a member to its model. Raises `ModelLoadError` for the first that fails."""
    requested = tuple([spec.name for spec in member.config.outputs])
    for warmup in member.config.warmup:
        inference = inference_of(member.config, warmup, member.folder.parent)
        head, _ = message_of(0, inference, requested)
        for _ in range(warmup.count):
            call = StepCall(head, inference, requested)
            model.execute(member.steps[0], [call])
            if call.error is not None:
                raise ModelLoadError(f"warm-up `{warmup.name}` failed: {call.error.message}")
