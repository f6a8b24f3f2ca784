"""Parameters of a step's response that replace the request's for the steps that read its outputs, as in Triton.

A model that chooses the sequence of a request returns `sequence_id`, `sequence_start` or `sequence_end` with its
response.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from adapters.tensors import Parameter, Parameters
from runtimes.tensor.ensembles.stages import PreparedStep
from runtimes.tensor.requests.messages import InferenceHead
from runtimes.tensor.requests.open_request import SEQUENCE_END, SEQUENCE_START

_NAMES: Final = ("sequence_id", "sequence_start", "sequence_end")


class SequenceOverrides:
    """The overrides of one request, by tensor of the ensemble."""

    __slots__ = ("_by_tensor",)

    def __init__(self) -> None:
        self._by_tensor: dict[str, dict[str, Parameter]] = {}

    def of(self, step: PreparedStep) -> dict[str, Parameter]:
        """The overrides of the step's inputs."""
        if not self._by_tensor:
            return {}
        return self._of(tensor for _, tensor, _ in step.inputs)

    def _of(self, tensors: Iterable[str]) -> dict[str, Parameter]:
        merged: dict[str, Parameter] = {}
        for tensor in tensors:
            merged |= self._by_tensor.get(tensor, {})
        return merged

    def add(self, step: PreparedStep, parameters: Parameters) -> None:
        """Add the overrides of a step's response."""
        if not (parameters or self._by_tensor):
            return
        own = {name: parameters[name] for name in _NAMES if name in parameters}
        if own := {**self.of(step), **own}:
            self._by_tensor.update(dict.fromkeys([tensor for _, tensor in step.outputs], own))


def overridden(head: InferenceHead, override: Mapping[str, Parameter]) -> InferenceHead:
    """The request with other parameters of its sequence."""
    if not override:
        return head
    correlation, flags = override.get("sequence_id", head.correlation), head.flags
    for name, flag in (("sequence_start", SEQUENCE_START), ("sequence_end", SEQUENCE_END)):
        if name in override:
            flags = flags | flag if override[name] else flags & ~flag
    return msgspec.structs.replace(
        head, correlation=correlation if isinstance(correlation, str) else int(correlation), flags=flags
    )
