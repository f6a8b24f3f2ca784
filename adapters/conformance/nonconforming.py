"""The error that a check raises for a violation of an adapter or its server."""

from collections.abc import Awaitable
from typing import NoReturn

from adapters.errors import InferenceError


class Nonconforming(Exception):
    """A violation of an adapter or its server, described in a sentence."""


def fail(why: str) -> NoReturn:
    raise Nonconforming(why)


async def refused(awaited: Awaitable[object], *kinds: type[InferenceError], code: str = "") -> InferenceError:
    """Return the error of a failed call. Raises `Nonconforming` unless it has one of `kinds`, or the given `code`."""
    try:
        await awaited
    except InferenceError as error:
        if isinstance(error, kinds) or (code and error.code == code):
            return error
        expected = " or ".join(kind.__name__ for kind in kinds)
        fail(f"expected {expected}, got {type(error).__name__}: {error.message}")
    fail("was answered")
