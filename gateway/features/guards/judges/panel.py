"""The judges of one side of a request: in parallel, each with its deadline and its breaker.

`on_error` is for the failures of a judge. What a client causes is no failure of it, or the client could choose to pass
unjudged: a limit that it exceeds, its own deadline, a text that is too long, or one about which a model writes no
verdict. The client receives the error of these.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from adapters.errors import (
    BudgetExceeded,
    CallerError,
    ContentFiltered,
    ContentRefused,
    ContextTooLong,
    DeadlineError,
    GuardFailed,
    InferenceError,
    LimitExceeded,
    NotFound,
    PoisonRequest,
    TooLarge,
    Unsupported,
    UpstreamTimeout,
)
from config.schema.guards import NamedGuardConfig
from gateway.features.guards.judges.base import GuardCalls, Judge, UndecidedError
from policies.guards.readable import readable

AT_ONCE = 8
"""Windows of one guard that are judged at the same time."""
MOST_WINDOWS = 4096
"""Windows of one request that a guard judges."""
LATE = "The deadline of the request passed while a guard judged it."


class Reporter(Protocol):
    """Learns the verdicts of the guards of one side."""

    def report(self, index: int) -> None:
        """A guard has found a text. May raise."""
        ...

    def failed(self, index: int) -> None:
        """A guard could not judge a text."""
        ...

    def too_long(self) -> InferenceError:
        """The error of a text that is too long to be judged."""
        ...


class GuardJudge(NamedTuple):
    """A judge, and the place of its guard among those of the request."""

    place: int
    guard: NamedGuardConfig
    judge: Judge


class Unjudged(NamedTuple):
    """Why a text has no verdict."""

    reason: str
    own: InferenceError | None = None
    """The error for what the client has caused; None for a failure of the judge."""


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
        given = [readable(text) for text in texts if whole or (text and not text.isspace())]
        judges = self.of_wholes if whole else self.judges
        if not given or not judges:
            return
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._verdict(each, given)) for each in judges]
        for each, task in zip(judges, tasks, strict=True):
            verdict = task.result()
            if isinstance(verdict, bool):
                if verdict:
                    self._side.report(each.place)
                continue
            self._side.failed(each.place)
            if each.guard.acts and verdict.own is not None:
                raise verdict.own
            if each.guard.acts and not each.judge.passes:
                error = GuardFailed("A guard could not judge the content.")
                error.detail = f"{each.guard.name}: {verdict.reason}"
                raise error

    async def _verdict(self, each: GuardJudge, texts: Sequence[str]) -> bool | Unjudged:
        """Whether one of the texts is found, or why that is not known."""
        judge = each.judge
        clock, breaker = self._calls.clock, judge.breaker
        if not breaker.allows(clock()):
            return Unjudged("it has failed too often, and rests")
        windows = judge.windows(texts)
        if len(windows) > MOST_WINDOWS:
            reason = f"the text has {len(windows)} windows, and {MOST_WINDOWS} at most are judged"
            return Unjudged(reason, self._side.too_long())
        breaker.begin(begun := clock())
        try:
            verdicts = await self._each(judge, windows, acts=each.guard.acts)
        except BaseException:
            breaker.abandoned(clock())
            raise
        finally:
            self._calls.took(each.guard.name, clock() - begun)
        failures = [verdict for verdict in verdicts if isinstance(verdict, InferenceError)]
        if len(failures) < len(verdicts):
            breaker.success(clock())
        elif any(map(self._blames, failures)):
            breaker.failure(clock())
        else:
            breaker.abandoned(clock())
        if True in verdicts or not failures:
            return True in verdicts
        own = (error for error in (self._own(each, failure) for failure in failures) if error is not None)
        return Unjudged(failures[0].message, next(own, None))

    async def _each(self, judge: Judge, windows: Sequence[str], *, acts: bool) -> list[bool | InferenceError]:
        """The verdict of each window, or its failure, until one is found: no failure may hide that.

        A guard that changes nothing begins no window after its timeout, so that it holds no request for long.
        """
        places, verdicts = asyncio.Semaphore(AT_ONCE), list[bool | InferenceError]()
        most = self._calls.clock() + judge.timeout
        matched = False

        async def one(window: str) -> None:
            nonlocal matched
            async with places:
                if matched:
                    return
                if not acts and verdicts and self._calls.clock() >= most:
                    verdicts.append(UpstreamTimeout(f"no verdict of each window within {judge.timeout:g} s"))
                    return
                verdict = await self._of_window(judge, window)
                matched = matched or verdict is True
                verdicts.append(verdict)

        if len(windows) == 1:
            await one(windows[0])
            return verdicts
        async with asyncio.TaskGroup() as group:
            for window in windows:
                group.create_task(one(window))
        return verdicts

    async def _of_window(self, judge: Judge, window: str) -> bool | InferenceError:
        try:
            async with asyncio.timeout(self._calls.left):
                return await judge.finds(window, self._calls)
        except InferenceError as error:
            return error
        except TimeoutError:
            return DeadlineError(LATE)

    def _own(self, each: GuardJudge, error: InferenceError) -> InferenceError | None:
        """The client's error for what it has caused itself; None for a failure of the judge."""
        if isinstance(error, LimitExceeded):
            return error
        if self._calls.are_late:
            return DeadlineError(LATE)
        if isinstance(error, ContextTooLong | TooLarge | BudgetExceeded):
            return self._side.too_long()
        if isinstance(error, ContentFiltered | ContentRefused):  # by its provider, or a guard in a pipeline
            return ContentFiltered("A guard cannot judge the content: its model refuses it.")
        if each.judge.passes and self._is_of_text(error):
            own = ContentFiltered("A guard cannot judge the content.")
            own.detail = f"{each.guard.name}: {error.message}"
            return own
        return None

    @staticmethod
    def _is_of_text(error: InferenceError) -> bool:
        """Whether a text may have led its judge to this, so that it must not pass."""
        if isinstance(error, NotFound | Unsupported):
            return False
        return isinstance(error, CallerError | UndecidedError | PoisonRequest)

    def _blames(self, error: InferenceError) -> bool:
        """Whether a failure counts for the breaker: one client must not open it for all, by a text or a deadline."""
        of_client = isinstance(error, LimitExceeded | CallerError | UndecidedError | PoisonRequest)
        return not (of_client or self._calls.are_late)
