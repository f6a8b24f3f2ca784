"""The outcome of a step as that of its ensemble: names of tensors, the response, errors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from adapters.errors import BackendError, CallerError, InferenceError
from adapters.tensors import Tensor
from runtimes.tensor.ensembles.passing import Reshape, passed
from runtimes.tensor.ensembles.stages import PreparedStep


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
