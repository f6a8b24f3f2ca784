"""Typed errors for HTTP statuses, and for the texts of servers of tensors over both wires."""

import email.utils
import math
import re
import time
from collections.abc import Sequence
from math import inf

from adapters.errors import (
    BackendError,
    CallerError,
    CapacityError,
    InferenceError,
    ModelNotReady,
    NotFound,
    SeveralResponses,
    Unsupported,
)
from adapters.http1.client import ClientResponse
from adapters.http1.message import Headers
from adapters.requests import InferRequest, ModelRequest
from adapters.wire import error_table, failure_text
from adapters.wire.decoding import whole_number
from adapters.wire.error_table import CALLER_STATUS as CALLER_STATUS
from adapters.wire.error_table import MAX_MESSAGE as MAX_MESSAGE
from adapters.wire.error_table import ErrorBody
from adapters.wire.error_table import credential_refused as credential_refused
from adapters.wire.error_table import unknown_model as unknown_model
from adapters.wire.oip.bodies import IndexEntry


def takes_tensors(request: ModelRequest) -> Unsupported:
    """Return the error for a chat."""
    return Unsupported(f"The model `{request.model}` takes tensors: its servers do not speak OpenAI's protocol.")


def unavailable(query: ModelRequest, reason: str) -> ModelNotReady:
    """Return the error for a model that its server cannot serve, with the reason."""
    return not_ready(query, [IndexEntry(query.model, query.version, "UNAVAILABLE", reason)])


def not_ready(query: ModelRequest, entries: Sequence[IndexEntry] = ()) -> ModelNotReady:
    """Return the error for a model that is not ready, with the state and the reason of its newest version.

    `entries` are the model's entries in the repository's index of its server.
    """
    entries = [one for one in entries if not query.version or one.version == query.version]
    newest = max(entries, key=lambda one: _number(one.version), default=IndexEntry(""))
    reason = failure_text.for_clients(newest.reason)
    state = newest.state or ("UNAVAILABLE" if reason else "")
    message = f"The model `{query.model}` is not ready: {reason or state.lower()}".removesuffix(": ").rstrip(".") + "."
    versions = tuple(one.version for one in entries if one.version)
    waiting = inf if state == "UNAVAILABLE" else None
    return ModelNotReady(message, state=state, reason=reason, versions=versions, retry_after=waiting)


def _number(version: str) -> int:
    return whole_number(version) or 0


def no_such_version(request: ModelRequest) -> NotFound:
    """Return the error for a missing version, which blames the client: the client chose the version."""
    return NotFound(
        f"The model `{request.model}` has no version `{request.version[:32]}`.", param="model_version"
    ).because("version_unknown", model=request.model, version=request.version)


_MAX_MESSAGE = 2_000
_NOT_READY = re.compile(r"\bnot ready\b|not at ready state|no available versions", re.IGNORECASE)
_UNKNOWN = re.compile(r"unknown model|not found", re.IGNORECASE)
_DECOUPLED = re.compile(r"decoupled transaction policy|any number of responses", re.IGNORECASE)
_FULL = re.compile(r"maximum queue size|timeout expired|unavailable|overloaded", re.IGNORECASE)


def refused_in_stream(request: ModelRequest, words: str) -> InferenceError:
    """Return the typed error of a stream's error message, which has no status, for a request that never ran."""
    check_ready(request, words)
    if _UNKNOWN.search(words):
        if request.version:
            return no_such_version(request)
        return BackendError("The upstream does not know the model.", code="upstream_model_not_found")
    if _FULL.search(words):
        return CapacityError("The upstream is overloaded.")
    return CallerError(words[:_MAX_MESSAGE])


def check_ready(request: ModelRequest, words: str | None) -> None:
    """Raise `ModelNotReady` if the text of an error that blames the request reports a model that is not ready."""
    if words and _NOT_READY.search(words):
        raise ModelNotReady(failure_text.for_clients(words))


def check_single(words: str | None) -> None:
    """Raise `SeveralResponses` if the text of an error reports that the model is decoupled."""
    if words and _DECOUPLED.search(words):
        raise SeveralResponses(words[:_MAX_MESSAGE])


def check_version(request: ModelRequest, versions: bool) -> None:
    """Raise `NotFound` for any version if models have no versions."""
    if request.version and not versions:
        raise no_such_version(request)


def check_readable(request: ModelRequest) -> None:
    """Raise `CallerError` for a request that cannot be decoded: some servers report it as their own failure."""
    if isinstance(request, InferRequest) and request.kind in ("infer", "infer_stream") and request.wire != "predict-v1":
        _ = request.inference


def device_ms(reported: str | None) -> float:
    """Return the milliseconds of the model's device that a server reports; 0 if it reports none."""
    try:
        value = float(reported or 0)
    except ValueError:
        return 0.0
    return value if 0 <= value < 1e12 else 0.0


MAX_ERROR_BODY = 64 * 1024


async def error_body(response: ClientResponse) -> bytes:
    """Return the body of a failed response, and close the response; empty for an unreadable body: the status is
    sufficient."""
    try:
        return await response.read(MAX_ERROR_BODY)
    except BackendError:
        return b""
    finally:
        response.close()


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
