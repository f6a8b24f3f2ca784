"""The judges of one side of a request: in parallel, each with its deadline and its breaker."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from adapters.errors import CallerError, GuardFailed, InferenceError, LimitExceeded
from config.schema.guards import NamedGuardConfig
from gateway.features.guards.judges.base import GuardCalls, Judge, UndecidedError

AT_ONCE = 8
"""Windows of one guard that are judged at the same time."""
MOST_WINDOWS = 4096
"""Windows of one request that a guard judges."""


class Reporter(Protocol):
    """Learns the verdicts of the guards of one side."""

    def report(self, index: int) -> None:
        """A guard has found a text. May raise."""
        ...

    def failed(self, index: int) -> None:
        """A guard could not judge a text."""
        ...


class GuardJudge(NamedTuple):
    """A judge, and the place of its guard among those of the request."""

    place: int
    guard: NamedGuardConfig
    judge: Judge


class Panel:
    """Judges the texts of one side of a request. `side` learns which guard finds one or fails, in the order of the
    file, and may raise."""

    def __init__(self, judges: Sequence[GuardJudge], side: Reporter, calls: GuardCalls) -> None:
        self.judges = [each for each in judges if not each.judge.whole]
        self.of_wholes = [each for each in judges if each.judge.whole]
        """Judges of whole answers."""
        self.acts = any(each.guard.acts for each in self.judges)
        """Whether a stream is held until its windows are judged."""
        self.holds = any(each.guard.acts for each in self.of_wholes)
        """Whether the content of a stream is held until its end."""
        self._side = side
        self._calls = calls
        self.window = max((each.judge.window for each in self.judges), default=0)
        self.overlap = min(max((each.judge.overlap for each in self.judges), default=0), max(self.window - 1, 0))

    async def examine(self, texts: Sequence[str], *, whole: bool = False) -> None:
        """Judge texts; `whole` ones by the judges of whole answers. Raises `GuardFailed`, and what the side raises."""
        given = [text for text in texts if text and not text.isspace()] if not whole else list(texts)
        judges = self.of_wholes if whole else self.judges
        if not given or not judges:
            return
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._verdict(each.judge, given)) for each in judges]
        for each, task in zip(judges, tasks, strict=True):
            verdict = task.result()
            if isinstance(verdict, bool):
                if verdict:
                    self._side.report(each.place)
                continue
            self._side.failed(each.place)
            if each.guard.acts and not each.judge.passes:
                error = GuardFailed("A guard could not judge the content.")
                error.detail = f"{each.guard.name}: {verdict}"
                raise error

    async def _verdict(self, judge: Judge, texts: Sequence[str]) -> bool | str:
        """Whether one of the texts is found, or why that is not known."""
        clock, breaker = self._calls.clock, judge.breaker
        if not breaker.allows(clock()):
            return "it has failed too often, and rests"
        windows = judge.windows(texts)
        if len(windows) > MOST_WINDOWS:
            return f"the text has {len(windows)} windows, and {MOST_WINDOWS} at most are judged"
        breaker.begin(clock())
        try:
            async with asyncio.timeout(judge.timeout):
                matched = await self._any(judge, windows)
        except (LimitExceeded, CallerError, UndecidedError) as error:  # of this client, or of this text
            breaker.abandoned(clock())
            return error.message
        except InferenceError as error:
            # One client must not open the breaker for all, by a deadline or by a long prompt.
            (breaker.abandoned if self._calls.are_late else breaker.failure)(clock())
            return error.message
        except TimeoutError:
            is_own = self._calls.are_late or len(windows) > AT_ONCE
            (breaker.abandoned if is_own else breaker.failure)(clock())
            return f"no verdict within {judge.timeout:g} s"
        except BaseException:
            breaker.abandoned(clock())
            raise
        breaker.success(clock())
        return matched

    async def _any(self, judge: Judge, windows: Sequence[str]) -> bool:
        if len(windows) == 1:
            return await judge.finds(windows[0], self._calls)
        places = asyncio.Semaphore(AT_ONCE)
        matched = False

        async def one(window: str) -> None:
            nonlocal matched
            async with places:
                if not matched and await judge.finds(window, self._calls):
                    matched = True

        try:
            async with asyncio.TaskGroup() as group:
                for window in windows:
                    group.create_task(one(window))
        except BaseExceptionGroup as failures:
            if not matched:
                raise failures.exceptions[0] from None
        return matched
