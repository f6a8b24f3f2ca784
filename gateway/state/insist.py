"""Repeats what a database, a broker or a storage does not answer, and logs each outage once."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from gateway.state.errors import StateError

log = logging.getLogger(__name__)
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""Seconds until a call is repeated: doubled from the first to the second."""
T = TypeVar("T")


class Outages:
    """The failures of one user of a database, by part of its work. Logs the begin and the end of each."""

    def __init__(self, name: str, *expected: type[Exception], meanwhile: str = "") -> None:
        """`expected`: the errors of an outage; by default those of the state database and of files. `meanwhile`: what
        operators can rely on while it lasts."""
        self.failing: dict[str, str] = {}
        """The last error of each part that fails."""
        self.expected = expected or (StateError, OSError)
        self._name = name
        self._meanwhile = f"; meanwhile {meanwhile}" if meanwhile else ""

    @property
    def available(self) -> bool:
        """Whether the last try of each part has succeeded."""
        return not self.failing

    def failed(self, part: str, error: Exception) -> None:
        """Log the begin of a failure; with the traceback if the error is not an expected one."""
        if part not in self.failing:
            defect = None if isinstance(error, self.expected) else error
            text = str(error) or type(error).__name__
            log.warning("%s: %s waits: %s%s", self._name, part, text, self._meanwhile, exc_info=defect)
        self.failing[part] = str(error)

    def succeeded(self, part: str) -> None:
        """Log the end of a failure."""
        if self.failing and self.failing.pop(part, None) is not None:
            log.warning("%s: %s continues", self._name, part)

    @contextmanager
    def noting(self, part: str) -> Iterator[None]:
        """Note whether the body succeeds. An expected error ends here."""
        try:
            yield
        except self.expected as error:
            self.failed(part, error)
        else:
            self.succeeded(part)


class Insistence(Outages):
    """Calls that are repeated until they succeed."""

    def __init__(
        self,
        name: str,
        *expected: type[Exception],
        meanwhile: str = "",
        ends: Callable[[Exception], bool] = lambda error: False,
    ) -> None:
        """`ends`: whether a call that raises an error is not repeated."""
        super().__init__(name, *expected, meanwhile=meanwhile)
        self._ends = ends

    async def __call__(self, part: str, call: Callable[[], Awaitable[T]]) -> T:
        """The result of the first call that succeeds. `part` names it in the log. Raises errors that end a call.

        An unexpected error is repeated too, unless it ends the call: a part that ended for good would wait until a
        restart.
        """
        pause = FIRST_PAUSE
        while True:
            try:
                result = await call()
            except Exception as error:
                if self._ends(error):
                    raise
                self.failed(part, error)
                await asyncio.sleep(pause)
                pause = min(LONGEST_PAUSE, 2 * pause)
            else:
                self.succeeded(part)
                return result
