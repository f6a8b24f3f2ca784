"""Typed errors for HTTP statuses, for servers of any protocol."""

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
from adapters.wire import model_failures
from adapters.wire.openai import refusals

CALLER_STATUS = frozenset({400, 405, 409, 411, 413, 415, 416, 422})
"""Statuses that blame the request; the body holds the reason."""
_OWN_FAILURE = frozenset({424, 500})
"""Statuses by which a server reports its own failure. 424: TGI, for a generation that fails."""

MAX_MESSAGE = 2_000


def upstream_error(status: int, headers: Headers, text: str | None = None) -> InferenceError:
    """Return the error of a status that does not blame the request. `text` is the server's own message."""
    if status in (429, 498, 503, 529):  # 498: Groq, if its flexible tier is full
        scope: Scope = "unknown" if status == 429 else "server"
        return CapacityError("The upstream is overloaded.", retry_after=retry_after(headers), scope=scope)
    if status in (401, 403):
        return credential_refused()
    if status == 404:
        return unknown_model()
    if status in (408, 504):
        return UpstreamTimeout("The upstream timed out.")
    return model_failures.server_failed(text if status in _OWN_FAILURE else None)


def refused(status: int, headers: Headers, message: str) -> InferenceError:
    """Return the error of any status, for a server with error bodies that hold a message only."""
    if status not in CALLER_STATUS:
        return upstream_error(status, headers, message)
    message = message[:MAX_MESSAGE] or "The upstream refused the request."
    if refusals.is_too_long(message, None, None):
        return ContextTooLong(message)
    return (TooLarge if status == 413 else CallerError)(message)


def credential_refused() -> BackendError:
    """Return the error for a pool's key that is wrong or has expired."""
    return BackendError("The upstream refused the gateway's own credential.", code="upstream_credential")


def unknown_model() -> BackendError:
    """Return the error for an endpoint that does not have the model, or not under this name."""
    return BackendError("The upstream does not know the model.", code="upstream_model_not_found")


def retry_after(headers: Headers) -> float | None:
    """Return the seconds of `retry-after-ms`, else of `retry-after` (seconds or a date); None for any other value."""
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
