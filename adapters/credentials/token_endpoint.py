"""Requests to the endpoints that issue tokens: bounded, and in their errors without what they contain."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from time import time
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec

from adapters.credentials.renewed import Issued, RenewalError
from adapters.errors import InferenceError
from adapters.http1.client import Client
from adapters.http1.message import encode_fields
from adapters.http1.proxy import environment_proxy
from adapters.types import Deadline
from adapters.wire import decoding

SECONDS = 10.0
MAX_ANSWER = 256 * 1024
UNSTATED_LIFETIME = 300.0
"""Seconds that a token is used whose issuer states no lifetime."""
_ERROR_CODE = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_TOKEN = re.compile(r"[!-~]{1,32768}")
FORM = ("content-type", "application/x-www-form-urlencoded")


async def fetch(
    method: str, url: str, fields: Sequence[tuple[str, str]] = (), body: bytes = b"", *, direct: bool = False
) -> bytes:
    """Return the body of a response with status 200. `direct` uses no proxy. Raises `RenewalError`."""
    parts = urlsplit(url)
    place = parts.netloc
    client = Client(
        f"{parts.scheme}://{parts.netloc}", max_connections=1, proxy=None if direct else environment_proxy(url),
        max_answer=MAX_ANSWER, connect_timeout=SECONDS / 2,
    )  # fmt: skip
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    head = encode_fields([("user-agent", "headrace"), ("accept", "application/json"), *fields])
    try:
        deadline = Deadline(client.now() + SECONDS, SECONDS, SECONDS)
        response = await client.request(method.encode(), target.encode(), head, body, deadline)
        text = await response.read(MAX_ANSWER)
    except InferenceError as error:
        raise RenewalError(f"{place}: {error.detail or error.message}") from None
    finally:
        await client.aclose()
    if response.status != 200:
        raise RenewalError(f"{place} answered {response.status}{_code_of(text)}")
    return text


async def fetch_json(
    method: str, url: str, fields: Sequence[tuple[str, str]] = (), body: bytes = b"", *, direct: bool = False
) -> dict[str, Any]:
    """Return the JSON object of a response with status 200. Raises `RenewalError`."""
    return object_of(await fetch(method, url, fields, body, direct=direct), urlsplit(url).netloc)


def object_of(text: bytes | str, source: str) -> dict[str, Any]:
    """The JSON object in a text of a source. Raises `RenewalError`."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except decoding.MALFORMED_JSON:
        raise RenewalError(f"{source}: the answer is not a JSON object") from None


def form(values: Mapping[str, str | None]) -> bytes:
    """Values as a form, without those that are None."""
    return urlencode({name: value for name, value in values.items() if value is not None}).encode()


def issued_token(answer: Mapping[str, Any], source: str) -> Issued[str]:
    """The token in an answer of OAuth (RFC 6749 5.1). Raises `RenewalError`."""
    return Issued(token_text(answer.get("access_token"), source), lifetime(answer.get("expires_in"), source))


def token_text(value: object, source: str) -> str:
    """A token that can be a value of a header. Raises `RenewalError`."""
    if not isinstance(value, str) or not _TOKEN.fullmatch(value):
        raise RenewalError(f"{source}: the answer has no token that a header can have")
    return value


def lifetime(value: object, source: str) -> float:
    """Seconds, also as digits in a text. Raises `RenewalError`."""
    if value is None:
        return UNSTATED_LIFETIME
    try:
        seconds = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
    except ValueError:
        seconds = None
    if seconds is None or not 0 <= seconds < 1e9:
        raise RenewalError(f"{source}: the lifetime of the token is not a number of seconds")
    return seconds


def seconds_until(value: object, source: str) -> float:
    """The seconds until a time: Unix seconds, or ISO 8601. Raises `RenewalError`."""
    try:
        if isinstance(value, str) and not value.replace(".", "", 1).isdigit():
            parsed = datetime.fromisoformat(value)
            return (parsed if parsed.tzinfo is not None else parsed.astimezone()).timestamp() - time()
        if isinstance(value, int | float | str) and not isinstance(value, bool):
            return float(value) - time()
    except (ValueError, OverflowError):
        pass
    raise RenewalError(f"{source}: the expiry is not a time")


def _code_of(text: bytes) -> str:
    """The code of an error in an answer: no other part of it is in a message, as it may repeat the request."""
    try:
        answer = msgspec.json.decode(text, type=dict[str, Any])
    except decoding.MALFORMED_JSON:
        return ""
    error = answer.get("error")
    code = (error.get("status") or error.get("code")) if isinstance(error, dict) else error
    return f" {code}" if isinstance(code, str) and _ERROR_CODE.fullmatch(code) else ""
