"""Converts a model's responses and errors to the server's, and the server's errors to the model's."""

from __future__ import annotations

from typing import Final

from adapters import statuses
from adapters.errors import MODEL_FAILED, BackendError, CallerError, CapacityError, ClientGone, InferenceError, NotFound
from adapters.http2.status import Code
from adapters.tensors import NO_PARAMETERS, Parameters, Tensor
from runtimes.tensor.requests.messages import ModelMessage, ResponseHead

UNKNOWN, INTERNAL, NOT_FOUND, INVALID_ARG, UNAVAILABLE, UNSUPPORTED, ALREADY_EXISTS, CANCELLED = range(8)
"""Triton's codes."""
_ERRORS: Final[dict[int, tuple[type[InferenceError], str]]] = {
    UNKNOWN: (BackendError, "model_failed_unknown"),
    INTERNAL: (BackendError, MODEL_FAILED),
    NOT_FOUND: (NotFound, "model_reports_not_found"),
    INVALID_ARG: (CallerError, "model_rejects_request"),
    UNAVAILABLE: (CapacityError, "model_unavailable"),
    UNSUPPORTED: (CallerError, "not_implemented"),
    ALREADY_EXISTS: (CallerError, "model_reports_existing"),
    CANCELLED: (ClientGone, "model_cancelled"),
}
_OF_MODEL: Final = frozenset(code for _, code in _ERRORS.values())
_CODES: Final = {
    Code.UNKNOWN: UNKNOWN,
    Code.NOT_FOUND: NOT_FOUND,
    Code.INVALID_ARGUMENT: INVALID_ARG,
    Code.UNAVAILABLE: UNAVAILABLE,
    Code.UNIMPLEMENTED: UNSUPPORTED,
    Code.ALREADY_EXISTS: ALREADY_EXISTS,
    Code.CANCELLED: CANCELLED,
    Code.DEADLINE_EXCEEDED: UNAVAILABLE,
}


NOT_ITERATIVE: Final = (
    "the model has rescheduled a request, which needs `sequence_batching { iterative_sequence: true }`"
)


class ModelOutputs(list[Tensor]):
    """The outputs of one response, with its parameters."""

    __slots__ = ("final", "parameters")

    def __init__(self, outputs: list[Tensor], parameters: Parameters = NO_PARAMETERS, *, final: bool) -> None:
        super().__init__(outputs)
        self.parameters = parameters
        self.final = final
        """Whether the model has marked it as its last."""


def error_of(code: int, message: str) -> InferenceError:
    """The error of one request, by Triton's code."""
    kind, name = _ERRORS.get(code, _ERRORS[INTERNAL])
    return kind(message or "The model failed.", code=name)


def is_of_model(error: InferenceError) -> bool:
    """Whether a model has reported it, and not the server before the model."""
    return error.code in _OF_MODEL


def code_of(error: InferenceError) -> int:
    """Triton's code of an error of this server."""
    return _CODES.get(statuses.grpc_code(error), INTERNAL)


def outputs_of(message: ModelMessage, head: ResponseHead, offset: int) -> tuple[ModelOutputs, int]:
    """The outputs of a response, as views of the message; and the offset of the next response in it."""
    parts, offset = message.tensors(head.outputs, offset)
    outputs = [
        Tensor(output.name, output.datatype, output.shape, part)
        for output, part in zip(head.outputs, parts, strict=True)
    ]
    return ModelOutputs(outputs, head.parameters or NO_PARAMETERS, final=head.final), offset
