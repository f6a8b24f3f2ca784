"""What an HTTP status says of the server that answered with it, whatever protocol it speaks."""

import email.utils
import math
import time

from adapters.errors import (
    BackendError,
    CallerError,
    CapacityError,
    ContextTooLong,
    InferenceError,
    Scope,
    TooLarge,
    UpstreamTimeout,
)
from adapters.http1.message import Headers
from adapters.wire.openai import refusals

CALLER_STATUS = frozenset({400, 405, 409, 411, 413, 415, 416, 422})
"""These blame the request, and a protocol's adapter reads the body for why."""

MAX_MESSAGE = 2_000


def upstream_error(status: int, headers: Headers) -> InferenceError:
    """The typed error behind a status that does not blame the request."""
    if status in (429, 498, 503, 529):  # 498: Groq, whose flexible tier is full
        scope: Scope = "unknown" if status == 429 else "server"
        return CapacityError("The upstream is overloaded.", retry_after=retry_after(headers), scope=scope)
    if status in (401, 403):
        return credential_refused()
    if status == 404:
        return model_not_known()
    if status in (408, 504):
        return UpstreamTimeout("The upstream timed out.")
    return BackendError("The upstream failed.")


def refused(status: int, headers: Headers, message: str) -> InferenceError:
    """The typed error behind any status, of a server whose body says no more of it than a message."""
    if status not in CALLER_STATUS:
        return upstream_error(status, headers)
    message = message[:MAX_MESSAGE] or "The upstream refused the request."
    if refusals.is_too_long(message, None, None):
        return ContextTooLong(message)
    return (TooLarge if status == 413 else CallerError)(message)


def credential_refused() -> BackendError:
    """The pool's key is wrong, or has ended."""
    return BackendError("The upstream refused the gateway's own credential.", code="upstream_credential")


def model_not_known() -> BackendError:
    """The pool's servers do not all have the model, or not by this name."""
    return BackendError("The upstream does not know the model.", code="upstream_model_not_found")


def retry_after(headers: Headers) -> float | None:
    """`retry-after-ms`, else `retry-after` in seconds or as a date; None for anything else."""
    try:
        if milliseconds := headers.get("retry-after-ms"):
            seconds = float(milliseconds) / 1000
        elif value := headers.get("retry-after"):
            is_number = value.strip().isdigit()
            seconds = float(value) if is_number else email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        else:
            return None
    except (ValueError, OverflowError):
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
