"""Decodes a body; the model's routes may drop invalid fields."""

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from adapters import offload
from adapters.errors import CallerError
from adapters.requests import InferRequest, InvalidFields
from adapters.wire.body import field, open_body
from adapters.wire.openai import model_field as named
from gateway.request.snapshot import Snapshot

T = TypeVar("T")
Words = Callable[[str], Iterable[str]]
"""Returns the names that a route may use for a field of a front."""

_encode = msgspec.json.Encoder().encode
_string = msgspec.json.Decoder(str)


def same(name: str) -> tuple[str, ...]:
    """The names in OpenAI's APIs, which routes use too."""
    return (name,)


async def decode(
    snapshot: Snapshot,
    read: Callable[[bytes], T],
    body: bytes,
    words: Words = same,
    operation: str = "",
    model: str = "",
) -> T:
    """Decode a request, without the invalid fields that a route of its model drops. A request without a model gets
    the default model of its operation. `model` is the name of a model that the body does not have.

    A large body with many values is decoded in another process, so `read` is a function of a module. It returns the
    request, or a tuple that begins with the request. The route is selected later: if it does not drop the field,
    `Core.handle` raises the error. Raises `CallerError`.
    """
    try:
        return read(body) if len(body) < offload.LARGE else await offload.parse(body, read, body)
    except CallerError as error:
        default = snapshot.config.default_models.of(operation)
        if default is None or error.param != "model" or await offload.parse(body, named.names_model, "", body):
            return await _without(snapshot, read, body, words, error, model)
        filled = await offload.parse(body, named.with_model, "", body, default)
        return _changed(await decode(snapshot, read, filled, words), size=len(body))


async def with_default_model(
    snapshot: Snapshot, operation: str, content_type: str, body: bytes, error: CallerError
) -> bytes | None:
    """The body with the default model of its operation; None without a default, or if the body names a model."""
    default = snapshot.config.default_models.of(operation)
    if default is None or error.param != "model":
        return None
    if await offload.scan(len(body), named.names_model, content_type, body):
        return None
    return await offload.scan(len(body), named.with_model, content_type, body, default)


async def _without(
    snapshot: Snapshot,
    read: Callable[[bytes], T],
    body: bytes,
    words: Words,
    refusal: CallerError,
    name_of_model: str,
) -> T:
    """Remove one invalid field at a time until the rest is valid. Raises `refusal` for a field that no route drops."""
    if refusal.param is None:
        raise refusal
    fields = await offload.parse(body, open_body, body)
    error, removed = refusal, list[frozenset[str]]()
    model = snapshot.catalogue.find(name_of_model or field(fields, "model", _string, required=True) or "")
    while model is not None and error.param is not None:
        name = re.split(r"[.\[]", error.param, maxsplit=1)[0]
        names = frozenset((name, *words(name)))
        if name not in fields or not names & model.rules.dropped:
            break
        del fields[name]
        removed.append(names)
        try:
            rest = _encode(fields)
            result = await offload.parse(rest, read, rest)
        except CallerError as next_error:
            error = next_error
            continue
        return _changed(result, size=len(body), invalid=InvalidFields(tuple(removed), refusal))
    raise refusal


def _changed(result: T, **changes: Any) -> T:
    """The result of a reader, with changes to its request."""
    if isinstance(result, tuple):
        return (replace(result[0], **changes), *result[1:])  # type: ignore[return-value]
    return replace(result, **changes)  # type: ignore[type-var]


async def decode_inference(
    snapshot: Snapshot,
    model: str,
    read: Callable[[frozenset[str]], Awaitable[InferRequest]],
    refusal: CallerError,
) -> InferRequest:
    """Decode an inference, without the invalid parameters that a route of the model drops.

    `read` decodes the request without a set of parameters. `refusal` is the error of the whole request: `Core.handle`
    raises it if the matching route does not drop the parameter.
    Raises `CallerError`.
    """
    names, error = frozenset[str](), refusal
    entry = snapshot.catalogue.find(model)
    dropped = frozenset[str]() if entry is None else entry.rules.dropped
    while error.param in dropped and error.param not in names:
        names |= {error.param}
        try:
            request = await read(names)
        except CallerError as next_error:
            error = next_error
            continue
        return replace(request, invalid=InvalidFields(tuple(frozenset((name,)) for name in names), refusal))
    raise refusal
