"""Request bodies and numbers in queries of the admin API, bodies within a budget of bytes for the whole listener."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec
from aiohttp import web

from adapters.errors import InferenceError
from adapters.http1.budget import COPIES, FREE_BYTES, Budget
from adapters.wire.decoding import MALFORMED_JSON, whole_number
from config.problem import closest
from gateway.admin.api.guard import AdminRefused
from gateway.features.usage.query import BadQuery

OBJECT_BYTES = 1024**2
"""Largest JSON object."""
OBJECT_SECONDS = 10.0
"""Time for a JSON object to arrive."""
SMALL_BYTES = 16 * OBJECT_BYTES
"""Bytes that small bodies may hold in addition to the largest one."""
_BUDGET = web.AppKey("budget", Budget)
_NAMES = {str: "a text", dict: "an object", int: "a whole number", list: "a list"}


def bound_bodies(app: web.Application, max_body: int) -> None:
    """Limit the bytes that all bodies of an application hold: one body of `max_body` bytes, and small bodies."""
    app[_BUDGET] = Budget(COPIES * (max_body + SMALL_BYTES))


@asynccontextmanager
async def body_of(request: web.Request, limit: int, seconds: float) -> AsyncIterator[bytes]:
    """Yield the body, whose bytes are counted until the end of the block. Raises `AdminRefused` and aiohttp's 413.

    The length is reserved before the body is read: `content-length`, or the limit without that header.
    """
    length = request.content_length
    if length is not None and length > limit:
        raise web.HTTPRequestEntityTooLarge(limit, length)
    held = COPIES * (limit if length is None and request.can_read_body else length or 0)
    held, budget = held if held > FREE_BYTES else 0, request.config_dict[_BUDGET]
    try:
        budget.take(held)
    except InferenceError:
        raise AdminRefused(
            503, "overloaded", "the admin listener holds too many bytes of bodies: retry later"
        ) from None
    try:
        yield await _read(request, limit, seconds)
    finally:
        budget.give(held)


async def _read(request: web.Request, limit: int, seconds: float) -> bytes:
    try:
        async with asyncio.timeout(seconds):
            return await request.clone(client_max_size=limit).read()
    except TimeoutError:
        raise AdminRefused(408, "request_timeout", f"the body did not arrive within {seconds:g} s") from None
    except ConnectionError:  # nobody receives this answer, and the audit log has it
        raise AdminRefused(400, "client_gone", "the client left before the end of the body") from None


async def read_json(request: web.Request) -> Any:
    """The value of a JSON body; an empty body is an empty object. Raises `AdminRefused`."""
    async with body_of(request, OBJECT_BYTES, OBJECT_SECONDS) as body:
        try:
            value = msgspec.json.decode(body) if body.strip() else {}
        except MALFORMED_JSON:
            raise AdminRefused(400, "invalid_json", "the body is not JSON") from None
        if b"\\u0000" in body.replace(b"\\\\", b""):
            raise AdminRefused(400, "invalid_json", "the body contains the character NUL, which no database stores")
        return value


async def read_object(request: web.Request, **fields: type) -> dict[str, Any]:
    """The object of a JSON body. Raises `AdminRefused` for an unknown field and for a value of another type."""
    body = await read_json(request)
    if not isinstance(body, dict):
        raise AdminRefused(400, "invalid_json", "the body is not a JSON object")
    for name, value in body.items():
        if name not in fields:
            near = closest(name, fields)
            hint = f': did you mean "{near}"?' if near else ""
            raise AdminRefused(400, "invalid_request", f"unknown field{hint}", param=name[:128])
        if not isinstance(value, fields[name]):
            raise AdminRefused(400, "invalid_request", f"expected {_NAMES[fields[name]]}", param=name)
    return body


def query_parameters(request: web.Request, allowed: Iterable[str], *others: str) -> dict[str, str]:
    """The parameters of a URL, without the `others`, which the handler reads itself. Raises `AdminRefused`."""
    texts = {name: text for name, text in dict(request.query).items() if name not in others}  # each once
    if unknown := sorted(set(texts) - set(allowed)):
        raise AdminRefused(400, "bad_query", f"`{unknown[0][:64]}` is not a parameter", param=unknown[0][:64])
    return texts


@contextmanager
def bad_queries() -> Iterator[None]:
    """Raise `AdminRefused` for a parameter with a wrong value, or for a tenant that the client may not read."""
    try:
        yield
    except BadQuery as error:
        status = 403 if error.name == "tenant" else 400
        raise AdminRefused(status, "bad_query", f"`{error.name}` {error}", param=error.name) from None


def number_of(request: web.Request, name: str) -> int | None:
    """A whole number in the query; None without one. Raises `AdminRefused`."""
    text = request.query.get(name)
    if text is None:
        return None
    if (number := whole_number(text, 1, 10**9)) is None:
        raise AdminRefused(400, "invalid_request", "expected a whole number from 1 on", param=name)
    return number
