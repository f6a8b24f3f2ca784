"""Repeats a call until a broker or a table answers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from adapters.brokers.base import BrokerUnavailable
from gateway.features.bus.done.table import DoneTableUnavailable

log = logging.getLogger(__name__)
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
T = TypeVar("T")


class Insistence:
    """The calls of one binding. Logs the begin and the end of each failure once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._failing: dict[str, str] = {}

    @property
    def available(self) -> bool:
        """Whether the last call of each kind has succeeded."""
        return not self._failing

    async def __call__(self, part: str, call: Callable[[], Awaitable[T]]) -> T:
        """The result of the first call that succeeds. `part` names it in the log.

        An unexpected error of a broker's library is logged with its traceback, and the call is repeated too: the
        binding would otherwise end for good, and its messages would wait until a restart.
        """
        pause = FIRST_PAUSE
        while True:
            try:
                result = await call()
            except Exception as error:
                self.failed(part, error)
                await asyncio.sleep(pause)
                pause = min(LONGEST_PAUSE, 2 * pause)
            else:
                self.succeeded(part)
                return result

    def succeeded(self, part: str) -> None:
        """Log the end of a failure."""
        if self._failing and self._failing.pop(part, None) is not None:
            log.warning("bus %s: %s continues", self._name, part)

    def failed(self, part: str, error: Exception) -> None:
        """Log the begin of a failure."""
        if part not in self._failing:
            unexpected = None if isinstance(error, BrokerUnavailable | DoneTableUnavailable) else error
            log.warning("bus %s: %s waits: %s", self._name, part, error or type(error).__name__, exc_info=unexpected)
        self._failing[part] = str(error)
