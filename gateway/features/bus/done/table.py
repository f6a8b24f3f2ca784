"""The interface of the table of ids.

A process claims an id before it works on the message, and renews the claim until it has ended. The end of the claim of
a process that has died lets another process claim the id. An id is stored as done after the broker has acknowledged the
answer and before the message is settled.
"""

from collections.abc import Sequence
from typing import Final, Protocol

MINE: Final = 0.0
DONE: Final = -1.0


class DoneTableUnavailable(Exception):
    """The table does not answer. The message is for operators."""


class DoneTable(Protocol):
    """The ids of one binding. Every method raises `DoneTableUnavailable`."""

    async def claim(self, ids: Sequence[str]) -> list[float]:
        """Claim ids. For each: `MINE`, `DONE`, or the seconds until the claim of another process ends."""
        ...

    async def renew(self, ids: Sequence[str]) -> list[bool]:
        """Renew claims. For each: whether the claim is this process's, also if it had ended."""
        ...

    async def finish(self, ids: Sequence[str]) -> None:
        """Store ids as done, for the window of the binding."""
        ...

    async def release(self, ids: Sequence[str]) -> None:
        """End claims, so that another process may claim the ids at once."""
        ...

    async def sweep(self) -> None:
        """Delete entries that have ended, if the storage does not."""
        ...
