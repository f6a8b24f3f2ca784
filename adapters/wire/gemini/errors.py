"""Google's errors: decoding, with the time after which a retry may succeed, and encoding."""

import math
import re
from typing import Any

import msgspec

from adapters.errors import ContextTooLong, InferenceError
from adapters.wire import error_table, failure_text
from adapters.wire.decoding import MALFORMED_JSON

_DELAY = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s")
_TOO_LONG = re.compile(r"token count .{0,60}exceeds|exceeds the maximum number of tokens", re.IGNORECASE | re.DOTALL)
_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    402: "FAILED_PRECONDITION",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    408: "DEADLINE_EXCEEDED",
    409: "ABORTED",
    413: "INVALID_ARGUMENT",
    415: "INVALID_ARGUMENT",
    422: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}

_any = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def retry_delay(body: bytes) -> float | None:
    """The seconds of `RetryInfo` in an error's details; None without one."""
    if b"RetryInfo" not in body:
        return None
    try:
        decoded = _any(body)
    except MALFORMED_JSON:
        return None
    if isinstance(decoded, list):
        decoded = decoded[0] if decoded else None
    error = decoded.get("error") if isinstance(decoded, dict) else None
    details = error.get("details") if isinstance(error, dict) else None
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and str(detail.get("@type", "")).endswith("RetryInfo"):
            match = _DELAY.fullmatch(str(detail.get("retryDelay", "")))
            return None if match is None else float(match[1])
    return None


def typed(status: int | None, body: bytes, wait: float | None = None) -> InferenceError:
    """The typed error of a status, or of an error in a stream (None). `wait` is that of the response's header."""
    reported = error_table.decode_error(body)
    if status in (None, 400) and _TOO_LONG.search(reported.message or ""):
        return ContextTooLong((reported.message or "")[: error_table.MAX_MESSAGE])
    failure = error_table.judged(status, reported, retry_delay(body) if wait is None else wait)
    if status is None and failure.message == failure_text.FAILED:
        failure.message = "The upstream failed in the middle of its answer."
    return failure


def encode_error(error: InferenceError, status: int) -> bytes:
    """Google's error object. Its details have the gateway's own stable code, and the time of a retry."""
    word = _STATUSES.get(status) or ("INTERNAL" if status >= 500 else "INVALID_ARGUMENT")
    reason: dict[str, Any] = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": error.code.upper(),
        "domain": "headrace",
    }
    details = [reason]
    if error.retry_after is not None and math.isfinite(error.retry_after):
        delay = f"{max(1, math.ceil(error.retry_after))}s"
        details.append({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay})
    message = error.message
    if isinstance(error, ContextTooLong) and not _TOO_LONG.search(message):
        message = f"The input token count exceeds the maximum number of tokens allowed: {message}"
    return _encode({"error": {"code": status, "message": message, "status": word, "details": details}})
