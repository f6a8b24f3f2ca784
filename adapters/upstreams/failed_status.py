"""Typed errors for HTTP statuses, for servers of any protocol."""

import email.utils
import math
import time

from adapters.errors import InferenceError
from adapters.http1.message import Headers
from adapters.wire import error_table
from adapters.wire.error_table import CALLER_STATUS as CALLER_STATUS
from adapters.wire.error_table import MAX_MESSAGE as MAX_MESSAGE
from adapters.wire.error_table import ErrorBody
from adapters.wire.error_table import credential_refused as credential_refused
from adapters.wire.error_table import unknown_model as unknown_model


def is_answer(status: int) -> bool:
    """Whether a status promises an answer in the body. 201 and 202: proxies of apps, for a POST."""
    return status in (200, 201, 202, 203)


def upstream_error(status: int, headers: Headers, text: str | None = None) -> InferenceError:
    """Return the error of a status that does not blame the request. `text` is the server's own message."""
    if status == 404:
        return unknown_model()
    return refused(status, headers, text)


def refused(status: int, headers: Headers, message: str | None) -> InferenceError:
    """Return the error of any status, for a server with error bodies that hold a message only."""
    return error_table.judged(status, ErrorBody(message), retry_after(headers))


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
