"""Decoding of a body whose route may drop the field that is not valid."""

import re
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from adapters.errors import CallerError
from adapters.types import ModelRequest
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


def decode(snapshot: Snapshot, read: Callable[[bytes], R], body: bytes, words: Words = same) -> R:
    """The request, without each field that is not valid and that a route of its model drops.

    Which route takes the request is known later: `Core.handle` raises the refusal where that route keeps the field.
    Raises `CallerError`.
    """
    try:
        return read(body)
    except CallerError as error:
        return _without(snapshot, read, body, words, error)


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
