"""Decoding of a body whose route may drop the field that is not valid."""

import re
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from adapters.errors import CallerError
from adapters.types import ModelRequest
from adapters.wire import named
from adapters.wire.body import field, open_body
from gateway.snapshot import Snapshot

R = TypeVar("R", bound=ModelRequest)
Words = Callable[[str], Iterable[str]]
"""The names that a route may use for a field of a door."""

_encode = msgspec.json.Encoder().encode
_string = msgspec.json.Decoder(str)


def same(name: str) -> tuple[str, ...]:
    """The words of OpenAI's doors."""
    return (name,)


def decode(snapshot: Snapshot, read: Callable[[bytes], R], body: bytes, words: Words = same, operation: str = "") -> R:
    """The request, without each field that is not valid and that a route of its model drops. A request that names no
    model gets the default of its operation.

    Which route takes the request is known later: `Core.handle` raises the refusal where that route keeps the field.
    Raises `CallerError`.
    """
    try:
        return read(body)
    except CallerError as error:
        if (filled := with_default_model(snapshot, operation, "", body, error)) is not None:
            return decode(snapshot, read, filled, words)
        return _without(snapshot, read, body, words, error)


def with_default_model(
    snapshot: Snapshot, operation: str, content_type: str, body: bytes, error: CallerError
) -> bytes | None:
    """The body with the default model of its operation; None where there is none, or the body names a model."""
    default = snapshot.config.default_models.of(operation)
    if default is None or error.param != "model" or named.names_model(content_type, body):
        return None
    return named.with_model(content_type, body, default)


def _without(snapshot: Snapshot, read: Callable[[bytes], R], body: bytes, words: Words, refusal: CallerError) -> R:
    """Remove one field at a time, until the rest is valid or must stay."""
    if refusal.param is None:
        raise refusal
    fields, error, removed = open_body(body), refusal, list[frozenset[str]]()
    known = snapshot.catalogue.find(field(fields, "model", _string, required=True) or "")
    while known is not None and error.param is not None:
        name = re.split(r"[.\[]", error.param, maxsplit=1)[0]
        names = frozenset((name, *words(name)))
        if name not in fields or not names & known.rules.dropped:
            break
        del fields[name]
        removed.append(names)
        try:
            request = read(_encode(fields))
        except CallerError as next_error:
            error = next_error
            continue
        request.removed, request.refusal = tuple(removed), refusal
        return request
    raise refusal
