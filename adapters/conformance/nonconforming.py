"""How a check reports that an adapter or its server does not conform."""

from collections.abc import Awaitable
from typing import NoReturn

from adapters.errors import InferenceError


class Nonconforming(Exception):
    """What is wrong with an adapter or its server, in a sentence."""


def fail(why: str) -> NoReturn:
    raise Nonconforming(why)


async def refused(awaited: Awaitable[object], *kinds: type[InferenceError], code: str = "") -> InferenceError:
    """The error with which a call ends: one of these, or one of this code. Raises `Nonconforming` for any other end."""
    try:
        await awaited
    except InferenceError as error:
        if isinstance(error, kinds) or (code and error.code == code):
            return error
        expected = " or ".join(kind.__name__ for kind in kinds)
        fail(f"expected {expected}, got {type(error).__name__}: {error.message}")
    fail("was answered")
