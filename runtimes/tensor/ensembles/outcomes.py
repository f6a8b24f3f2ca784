"""Responses and errors of steps as those of the ensemble, and the sequence that a step's response names, for the steps
that read its outputs, as in Triton.

A model that chooses the sequence of a request returns `sequence_id`, `sequence_start` or `sequence_end` with its
response. Any of them replaces both flags: a flag that the response leaves out is false. Without `sequence_id` the id
stays. The steps behind the reading step inherit the override.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from adapters.errors import BackendError, CallerError, InferenceError
from adapters.tensors import NO_PARAMETERS, Parameter, Parameters, Tensor
from runtimes.tensor.ensembles.stages import PreparedStep, Reshape, passed
from runtimes.tensor.requests.messages import InferenceHead
from runtimes.tensor.requests.open_request import SEQUENCE_END, SEQUENCE_START


def renamed(step: PreparedStep, outputs: Iterable[Tensor]) -> dict[str, Tensor]:
    """The outputs of a step by the names of the ensemble."""
    by_name = {tensor.name: tensor for tensor in outputs}
    return {tensor: by_name[name] for name, tensor in step.outputs if name in by_name}


def answer_of(
    ensemble: str,
    values: Mapping[str, Tensor],
    requested: Sequence[str],
    reshapes: Mapping[str, Reshape],
    steps: Iterable[PreparedStep],
) -> list[Tensor]:
    """The response. Raises `BackendError` if a step was skipped for lack of an input."""
    answer = []
    for name in requested:
        tensor = values.get(name)
        if tensor is not None:
            answer.append(passed(tensor, name, reshapes.get(name)))
    if len(answer) < len(requested):
        _check_absent(ensemble, values, steps)
    return answer


def _check_absent(ensemble: str, values: Mapping[str, Tensor], steps: Iterable[PreparedStep]) -> None:
    """Raise `BackendError` if a step did not run because no step returned its inputs."""
    for step in steps:
        absent = [tensor for _, tensor, _ in step.inputs if tensor not in values]
        if absent and all(tensor not in values for _, tensor in step.outputs):
            raise BackendError(
                f"in ensemble '{ensemble}', {step.name} could not run: no step returned `{', '.join(absent)}`",
                code="model_failed",
            )


def step_failure(ensemble: str, step: PreparedStep, error: InferenceError, own: Collection[str]) -> InferenceError:
    """The error of a step as that of the ensemble, whose inputs are `own`.

    The error stays the caller's only if it concerns the ensemble's own inputs.
    """
    message = f"in ensemble '{ensemble}', {step.name}: {error.message}"
    if isinstance(error, CallerError):
        tensors = {name: tensor for name, tensor, _ in step.inputs}
        tensor = tensors.get(error.param or "")
        is_own = tensor in own or (tensor is None and set(tensors.values()) <= set(own))
        if not is_own:
            return BackendError(message, code="model_failed")
        error.param = tensor or error.param
    error.message, error.args = message, (message,)
    return error


_ID: Final = "sequence_id"
_FLAGS: Final = {"sequence_start": SEQUENCE_START, "sequence_end": SEQUENCE_END}


class SequenceOverrides:
    """The overrides of one request or, behind a decoupled model, of one of its responses; by tensor of the ensemble."""

    __slots__ = ("_by_tensor",)

    def __init__(self, by_tensor: Mapping[str, Parameters] | None = None) -> None:
        self._by_tensor = dict(by_tensor or {})

    def of(self, step: PreparedStep) -> Parameters:
        """The override of a step: that of its first input with an override."""
        if self._by_tensor:
            for _, tensor, _ in step.inputs:
                if tensor in self._by_tensor:
                    return self._by_tensor[tensor]
        return NO_PARAMETERS

    def add(self, step: PreparedStep, parameters: Parameters) -> None:
        """Add the override of a step's response. Raises `BackendError` for a value of another type."""
        if parameters or self._by_tensor:
            self._by_tensor.update(self._of_outputs(step, parameters))

    def behind(self, step: PreparedStep, parameters: Parameters) -> SequenceOverrides:
        """The overrides behind one response of a decoupled step. Raises `BackendError` for a value of another type."""
        return SequenceOverrides(self._of_outputs(step, parameters) if parameters or self._by_tensor else None)

    def _of_outputs(self, step: PreparedStep, parameters: Parameters) -> dict[str, Parameters]:
        own = self.of(step)
        override = named(parameters, own) if parameters else own
        return dict.fromkeys([tensor for _, tensor in step.outputs], override) if override else {}


def named(parameters: Parameters, inherited: Parameters) -> Parameters:
    """The override that a response names; the inherited one if it names none. Raises `BackendError`."""
    if _ID not in parameters and not _FLAGS.keys() & parameters.keys():
        return inherited
    override: dict[str, Parameter] = {}
    sequence = parameters.get(_ID, inherited.get(_ID))
    if sequence is not None:
        override[_ID] = _checked(_ID, sequence, (int, str))
    for name in _FLAGS:
        override[name] = _checked(name, parameters.get(name, False), (bool,))
    return override


def _checked(name: str, value: Parameter, kinds: tuple[type, ...]) -> Parameter:
    """The value of a parameter, if it has the required type: a boolean is no integer."""
    if type(value) in kinds:
        return value
    required = " or ".join(kind.__name__ for kind in kinds)
    message = f"the response parameter `{name}` is of the type {type(value).__name__}, and must be {required}"
    raise BackendError(message, code="model_failed")


def overridden(head: InferenceHead, override: Parameters) -> InferenceHead:
    """The request with another sequence."""
    if not override:
        return head
    correlation = override.get(_ID, head.correlation)
    flags = sum(flag for name, flag in _FLAGS.items() if override[name])
    return msgspec.structs.replace(
        head, correlation=correlation if isinstance(correlation, str) else int(correlation), flags=flags
    )
