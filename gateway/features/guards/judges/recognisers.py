"""Recognisers: servers with the contract of Presidio's analyzer, which find names and places in texts.

``POST /analyze`` with ``text``, ``language``, ``entities`` and ``score_threshold`` returns a list of ``start``,
``end``, ``entity_type`` and ``score``. Places are code points.
"""

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from adapters.answer import Answer
from adapters.errors import BackendError, DeadlineError, InferenceError, LimitExceeded, UpstreamTimeout
from adapters.requests import AppRequest
from adapters.wire import decoding
from config.schema.guards import RecogniserConfig
from gateway.features.guards.judges.base import FAILURES, OPEN_SECONDS, GuardCalls
from policies.breaker import Breaker
from policies.guards.personal.masking import Recognised
from policies.guards.readable import readable

WINDOW, OVERLAP = 8192, 256
"""Characters of one request to a recogniser, and those of a long text that the next one has again."""
AT_ONCE = 8
MOST_WINDOWS = 512
"""Requests to a recogniser for one prompt."""
_GAP = "\n\n"
"""Between two texts of one request, so that no entity has parts of both."""
_encode = msgspec.json.Encoder().encode


class _Entity(msgspec.Struct):
    start: int
    end: int
    entity_type: str
    score: float


_entities = msgspec.json.Decoder(list[_Entity]).decode


class WindowPart(NamedTuple):
    """A part of a text, and its place in a window."""

    text: str
    begin: int
    """In its text."""
    part: str
    at: int
    """In the window."""


class TooManyTexts(Exception):
    """The prompt is too long for a recogniser."""


class Recogniser:
    """Finds names and places. Shared by all requests."""

    def __init__(self, config: RecogniserConfig) -> None:
        self._config = config
        self._kinds = {entity: kind_of(entity) for entity in config.entities}
        self.breaker = Breaker(FAILURES, OPEN_SECONDS)

    @property
    def kinds(self) -> Iterable[str]:
        """The kinds of its placeholders."""
        return self._kinds.values()

    async def recognised(self, texts: Iterable[str], guard: int, calls: GuardCalls) -> Mapping[str, list[Recognised]]:
        """The values of each text. Raises `InferenceError` for a failure, and `TooManyTexts`."""
        windows = list(windows_of(texts))
        if len(windows) > MOST_WINDOWS:
            raise TooManyTexts
        if not windows:
            return {}
        clock, breaker = calls.clock, self.breaker
        if not breaker.allows(clock()):
            raise BackendError("it has failed too often, and rests")
        breaker.begin(clock())
        try:
            values = await self._all(windows, guard, calls)
        except InferenceError as error:
            # One client must not open the breaker for all, by its limits, by its deadline or by a long prompt.
            is_long = isinstance(error, UpstreamTimeout) and len(windows) > AT_ONCE
            is_own = is_long or isinstance(error, LimitExceeded | DeadlineError)
            (breaker.abandoned if is_own else breaker.failure)(clock())
            raise
        except BaseException:
            breaker.abandoned(clock())
            raise
        breaker.success(clock())
        return values

    async def _all(
        self, windows: Sequence[Sequence[WindowPart]], guard: int, calls: GuardCalls
    ) -> Mapping[str, list[Recognised]]:
        places, values = asyncio.Semaphore(AT_ONCE), dict[str, list[Recognised]]()

        async def one(window: Sequence[WindowPart]) -> None:
            async with places:
                for text, value in self._placed(window, await self._entities_of(window, calls), guard):
                    values.setdefault(text, []).append(value)

        try:
            async with asyncio.timeout(self._config.timeout), asyncio.TaskGroup() as group:
                for window in windows:
                    group.create_task(one(window))
        except* (TimeoutError, InferenceError) as failures:
            raise self._error_of(failures.exceptions, calls) from None
        return values

    def _error_of(self, failures: Sequence[BaseException], calls: GuardCalls) -> InferenceError:
        """The error for those of several windows. What the client has caused is first, so that no other hides it."""
        errors = [each for each in failures if isinstance(each, InferenceError) and not isinstance(each, DeadlineError)]
        if limits := [each for each in errors if isinstance(each, LimitExceeded)]:
            return limits[0]
        if len(errors) < len(failures) and calls.are_late:  # a call ends at the earlier one of both
            return _late()
        if errors:
            return min(errors, key=lambda each: (type(each).__name__, each.message))
        return UpstreamTimeout(f"no answer within {self._config.timeout:g} s")

    async def _entities_of(self, window: Sequence[WindowPart], calls: GuardCalls) -> list[_Entity]:
        config = self._config
        body = _encode({
            "text": readable(_GAP.join(piece.part for piece in window)),
            "language": config.language,
            "entities": config.entities,
            "score_threshold": config.threshold,
        })  # fmt: skip
        request = AppRequest(
            model=config.model, path="/analyze", body=body, size=len(body), content_type="application/json",
            accept="application/json", repeatable=True,
        )  # fmt: skip
        return _decoded(await calls.call(config.model, request, config.timeout))

    def _placed(
        self, window: Sequence[WindowPart], entities: Sequence[_Entity], guard: int
    ) -> Iterator[tuple[str, Recognised]]:
        """The entities of a window at their places in its texts. Raises `BackendError` for other places."""
        size = window[-1].at + len(window[-1].part)
        places = [piece.at for piece in window]
        for each in entities:
            if not 0 <= each.start < each.end <= size:
                raise _unreadable()
            kind = self._kinds.get(each.entity_type)
            if kind is None or each.score < self._config.threshold:
                continue
            first, last = bisect_right(places, each.start) - 1, bisect_left(places, each.end)
            for piece in window[first:last]:  # a window may have thousands of texts
                begin, end = max(each.start - piece.at, 0), min(each.end - piece.at, len(piece.part))
                value = piece.part[begin:end] if begin < end else ""
                if any(map(str.isalnum, value)):
                    begin += len(value) - len(value.lstrip())
                    end -= len(value) - len(value.rstrip())
                    yield piece.text, Recognised(piece.begin + begin, piece.begin + end, kind, guard)


def kind_of(entity: str) -> str:
    """The kind of an entity's placeholders: ``US_DRIVER_LICENSE`` has those of ``USDRIVERLICENSE``."""
    return entity.replace("_", "")


def windows_of(texts: Iterable[str]) -> Iterator[list[WindowPart]]:
    """Texts in windows, each of which is one request. Texts without letters have no names."""
    window, size = list[WindowPart](), 0
    for text in dict.fromkeys(texts):
        if not any(map(str.isalpha, text)):
            continue
        for begin in range(0, max(len(text) - OVERLAP, 1), WINDOW - OVERLAP):
            part = text[begin : begin + WINDOW]
            if window and size + len(_GAP) + len(part) > WINDOW:
                yield window
                window, size = [], 0
            at = size + len(_GAP) if window else 0
            window.append(WindowPart(text, begin, part, at))
            size = at + len(part)
    if window:
        yield window


def _late() -> DeadlineError:
    return DeadlineError("The deadline of the request passed while a guard examined it.")


def _decoded(answer: Answer) -> list[_Entity]:
    if answer.status != 200:
        raise BackendError(f"The recogniser answered with the status {answer.status}.", code="upstream_bad_response")
    try:
        return _entities(answer.body or b"")
    except decoding.MALFORMED_JSON:
        raise _unreadable() from None


def _unreadable() -> BackendError:
    return BackendError("The answer of the recogniser has no entities of the text.", code="upstream_bad_response")
