"""Requests to the endpoints that issue tokens and keys: bounded, and in their errors without what they contain."""

import asyncio
import os
import re
import ssl
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from time import time
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import msgspec

from adapters.certificates import modified, read_roots
from adapters.credentials.renewed import Issued, RenewalError
from adapters.errors import InferenceError
from adapters.http1.client import Client
from adapters.http1.message import encode_fields
from adapters.http1.proxy import proxy_of
from adapters.types import Deadline
from adapters.wire import decoding
from config.schema.protocols.egress import DIRECT, ProxyConfig

SECONDS = 10.0
MAX_ANSWER = 256 * 1024
UNSTATED_LIFETIME = 300.0
"""Seconds that a token is used whose issuer states no lifetime."""
FORM = ("content-type", "application/x-www-form-urlencoded")
JSON = ("content-type", "application/json")
_ERROR_CODE = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_XML_CODE = re.compile(rb"<Code>([A-Za-z0-9_.:-]{1,64})</Code>")
_TOKEN = re.compile(r"[!-~]{1,32768}")


class TokenOutlet(NamedTuple):
    """The way to an issuer: a pool's proxy and its CA file, whose certificates are trusted beside the system's."""

    proxy: ProxyConfig | None = None
    ca: str | None = None

    async def fetch(
        self,
        method: str,
        url: str,
        fields: Sequence[tuple[str, str]] = (),
        body: bytes = b"",
        *,
        seconds: float = SECONDS,
    ) -> bytes:
        """Return the body of a response with status 200. Raises `RenewalError`."""
        parts = urlsplit(url)
        client = Client(
            f"{parts.scheme}://{parts.netloc}",
            tls=await asyncio.to_thread(_context, self.ca) if parts.scheme == "https" else None,
            connect_timeout=seconds / 2,
            max_connections=1,
            proxy=proxy_of(self.proxy, url),
            max_answer=MAX_ANSWER,
        )
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        head = encode_fields([("user-agent", "headrace"), ("accept", "application/json"), *fields])
        try:
            deadline = Deadline(client.now() + seconds, seconds, seconds)
            response = await client.request(method.encode(), target.encode(), head, body, deadline)
            text = await response.read(MAX_ANSWER)
        except InferenceError as error:
            raise RenewalError(f"{parts.netloc}: {error.detail or error.message}") from None
        finally:
            await client.aclose()
        if response.status != 200:
            raise RenewalError(f"{parts.netloc} answered {response.status}{_code_of(text)}")
        return text

    async def fetch_json(
        self, method: str, url: str, fields: Sequence[tuple[str, str]] = (), body: bytes = b""
    ) -> dict[str, Any]:
        """Return the JSON object of a response with status 200. Raises `RenewalError`."""
        return object_of(await self.fetch(method, url, fields, body), urlsplit(url).netloc)


MACHINE = TokenOutlet(ProxyConfig(url=DIRECT))
"""The way to the metadata of the machine, which no proxy can reach."""


def _context(ca: str | None) -> ssl.SSLContext:
    """The context with a CA file as it is now. Raises `RenewalError`."""
    try:
        return _loaded(ca, 0 if ca is None else modified(ca))
    except (OSError, ValueError) as error:
        raise RenewalError(f"the CA file {ca}: {getattr(error, 'strerror', None) or error}") from None


@lru_cache(maxsize=16)
def _loaded(ca: str | None, time: int) -> ssl.SSLContext:
    """Reading the system's roots takes tens of milliseconds. `time` is that of the file's last change."""
    made = ssl.create_default_context()
    if ca is not None:
        made.load_verify_locations(cadata=read_roots(ca))
    return made


def object_of(text: bytes | str, source: str) -> dict[str, Any]:
    """The JSON object in a text of a source. Raises `RenewalError`."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except decoding.MALFORMED_JSON:
        raise RenewalError(f"{source}: the text is not a JSON object") from None


def text_in(answer: Mapping[str, Any], name: str, source: str) -> str:
    """The text in a field of an answer. Raises `RenewalError`."""
    if not isinstance(value := answer.get(name), str) or not value:
        raise RenewalError(f"{source}: there is no `{name}`")
    return value


def read_text(path: str, purpose: str) -> str:
    """The text of a file without the whitespace around it. Raises `RenewalError`."""
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            text = file.read(MAX_ANSWER).strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise RenewalError(f"{purpose} {path}: {reason}") from None
    if not text:
        raise RenewalError(f"{purpose} {path}: it is empty")
    return text


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
    """The seconds until a time: Unix seconds, or ISO 8601 in UTC unless it states its zone. Raises `RenewalError`."""
    try:
        if isinstance(value, str) and not value.replace(".", "", 1).isdigit():
            parsed = datetime.fromisoformat(value)
            return (parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)).timestamp() - time()
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
        return f" {match[1].decode()}" if (match := _XML_CODE.search(text)) is not None else ""
    error = answer.get("error")
    code = (error.get("status") or error.get("code")) if isinstance(error, dict) else error
    return f" {code}" if isinstance(code, str) and _ERROR_CODE.fullmatch(code) else ""
