"""What a check is."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from adapters.errors import InferenceError

if TYPE_CHECKING:
    from adapters.conformance.bench import Bench

Run = Callable[["Bench"], Awaitable[None]]


class Nonconforming(Exception):
    """What is wrong with an adapter or its server, in a sentence."""


class Check(NamedTuple):
    """A feature, why it matters, and how it is seen. `run` returns when all is as it should be."""

    feature: str
    why: str
    run: Run
    absence: Run | None = None
    """Seen to where the protocol lacks the feature: whoever asks for it is told so."""


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
