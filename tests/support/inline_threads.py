"""Threads that take no time: virtual time does not wait for a real one."""

import asyncio
from collections.abc import Callable

import pytest

from config import waiting


class _Inline:
    def submit(self, work: Callable[[], None]) -> None:
        work()


async def _run(function: Callable[..., object], *arguments: object) -> object:
    return function(*arguments)


def take_no_time(patch: pytest.MonkeyPatch) -> None:
    """Run looks and calls of threads at once, in the loop."""
    patch.setattr(waiting, "threads", _Inline())
    patch.setattr(asyncio, "to_thread", _run)
