"""Bedrock's errors: exceptions by their names, as HTTP answers and as frames of a stream.

exception                                     class
Throttling, ServiceQuotaExceeded              capacity
ModelNotReady, ServiceUnavailable             capacity
Validation: too long                          the prompt is too long
Validation: the identifier, no on-demand use  the model is unknown
Validation                                    the caller's
UnrecognizedClient, ExpiredToken …            the credential
AccessDenied                                  the credential, or the model
ResourceNotFound                              the model
ModelTimeout                                  a timeout
InternalServer, ModelError, ModelStreamError  the server's failure
"""

import re
from contextlib import suppress

import msgspec

from adapters.errors import InferenceError
from adapters.wire import error_table, failure_text
from adapters.wire.bedrock.event_stream import StreamFrame
from adapters.wire.error_table import ErrorBody

_STATUS = {
    "ServiceQuotaExceededException": 429,
    "ThrottlingException": 429,
    "ModelNotReadyException": 503,
    "ServiceUnavailableException": 503,
    "ValidationException": 400,
    "UnrecognizedClientException": 401,
    "ExpiredTokenException": 401,
    "ExpiredToken": 401,
    "IncompleteSignatureException": 401,
    "InvalidSignatureException": 401,
    "InvalidClientTokenIdException": 401,
    "MissingAuthenticationTokenException": 401,
    "AccessDeniedException": 403,
    "ResourceNotFoundException": 404,
    "ModelTimeoutException": 408,
    "ModelErrorException": 424,
    "ModelStreamErrorException": 424,
    "InternalServerException": 500,
    "InternalFailure": 500,
}
"""The status that an exception stands for, where Bedrock's own says less: a quota is a 400 there."""
_TOO_LONG = re.compile(
    r"(input|prompt) is too long|too many input tokens|max(imum)?\b.{0,60}\btokens?\b.{0,80}\b(input|prompt)"
    r"|(input|prompt)\b.{0,80}\bexceeds?\b.{0,60}\b(tokens?|context|length)",
    re.IGNORECASE | re.DOTALL,
)
_NO_MODEL = re.compile(
    r"model identifier is invalid|on-demand throughput isn.t supported"
    r"|model .{0,80}(end of its life|marked .{0,20}legacy)",
    re.IGNORECASE,
)
_NOT_ALLOWED = re.compile(r"not authorized to perform|api key|security token", re.IGNORECASE)
TOO_LONG = "context_length_exceeded"


class _Exception(msgspec.Struct):
    originalMessage: str | None = None  # noqa: N815


_exception = msgspec.json.Decoder(_Exception).decode


def error_of(status: int, type_: str | None, body: bytes, retry_after: float | None) -> InferenceError:
    """The typed error of a status other than 2xx. `type_` is the header `x-amzn-errortype`."""
    reported = error_table.decode_error(body)
    name = (type_ or reported.type or "").partition(":")[0].rpartition("#")[2]
    return _judged(status, name, reported, retry_after)


def error_of_frame(frame: StreamFrame) -> InferenceError:
    """The typed error of an exception, or of an error, in a stream."""
    headers = frame.headers
    name = headers.get(":exception-type") or headers.get(":error-code") or ""
    reported = error_table.decode_error(frame.payload)
    if reported.message is None:
        reported.message = headers.get(":error-message")
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        reported.message = _exception(frame.payload).originalMessage or reported.message
    failure = _judged(500, name[:1].upper() + name[1:], reported, None)
    if failure.message == failure_text.FAILED:
        failure.message = "The upstream failed in the middle of its answer."
    return failure


def _judged(status: int, name: str, reported: ErrorBody, retry_after: float | None) -> InferenceError:
    status, words = _STATUS.get(name, status), reported.message or ""
    code = None
    if status == 400 and _TOO_LONG.search(words):
        code = TOO_LONG
    elif status == 400 and _NO_MODEL.search(words):
        status = 404
        reported = ErrorBody(reported.message, name, "model")
    elif status == 403 and _NOT_ALLOWED.search(words):
        status = 401
    return error_table.judged(status, ErrorBody(reported.message, name or None, reported.param, code), retry_after)
