"""Merges the choices of a request into its answer, whole or as a stream of events."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby
from typing import NamedTuple

from msgspec import UNSET, UnsetType

from adapters.errors import BackendError, InferenceError
from adapters.spans import Attribute, Span
from adapters.wire import sse
from adapters.wire.openai import chat as openai
from runtimes.llm.api.answers import AnswerWriter, CompletionDetails, Finished, PromptDetails, TokenReport, UsageBody
from runtimes.llm.api.choice import AnswerChoice
from runtimes.llm.api.metrics import ServerMetrics
from runtimes.llm.api.token_logprobs import ScoredPrompt, ScoredToken
from runtimes.llm.sequence import PhaseTimes
from runtimes.spans import around, phase


def record(span: Span, choices: Sequence[AnswerChoice], prompt_tokens: int) -> None:
    """Add the phases of all choices below the request's span, and the tokens to the span itself."""
    now = span.log.clock()
    for choice in choices:
        _phases(span, choice, now)
    span.attributes["gen_ai.usage.input_tokens"] = prompt_tokens
    span.attributes["gen_ai.usage.output_tokens"] = sum([choice.completion_tokens for choice in choices])
    span.attributes["gen_ai.usage.cache_read.input_tokens"] = sum(
        {choice.prompt: choice.cached_tokens for choice in choices}.values()
    )
    span.attributes["gen_ai.response.finish_reasons"] = tuple([choice.finish_reason for choice in choices])


def _phases(span: Span, choice: AnswerChoice, now: float) -> None:
    """A phase that was not reached is absent; the phase in which the request ended ends with it."""
    times = choice.times
    if times is None:
        return
    about: dict[str, Attribute] = {"headrace.choice": choice.index}
    phase(span, "queue", times.submitted, times.started or now, dict(about))
    if not times.started:
        return
    cached: dict[str, Attribute] = {"headrace.cached_tokens": choice.cached_tokens}
    phase(span, "prefill", times.started, times.first_token or now, about | cached)
    if times.first_token:
        produced: dict[str, Attribute] = {
            "headrace.tokens": choice.completion_tokens,
            "headrace.preemptions": times.preemptions,
        }
        phase(span, "decode", times.first_token, times.last_token, about | produced)


class EmbeddingPhases:
    """The phases of all texts of a request: their first wait, and their computation."""

    def __init__(self) -> None:
        self._span = around.get()
        self._texts: list[PhaseTimes] = []

    def begin(self) -> PhaseTimes | None:
        """The times of another text; None if the request is not traced."""
        if self._span is None:
            return None
        self._texts.append(times := PhaseTimes(self._span.log.clock()))
        return times

    def record(self, tokens: int) -> None:
        """Add the phases below the request's span."""
        if (span := self._span) is None or not self._texts:
            return
        now = span.log.clock()
        started = min([times.started for times in self._texts if times.started], default=0.0)
        phase(span, "queue", min([times.submitted for times in self._texts]), started or now, {})
        if started:
            ended = max([times.last_token for times in self._texts])
            phase(span, "batch", started, ended or now, {"headrace.texts": len(self._texts), "headrace.tokens": tokens})
        span.attributes["gen_ai.usage.input_tokens"] = tokens


log = logging.getLogger(__name__)


class Piece(NamedTuple):
    """The next piece of one choice; its end has `text` None."""

    choice: AnswerChoice
    text: str | None
    report: TokenReport


class Answering:
    """The choices of one request, merged; iterates over their pieces in the order of arrival.

    The first failure is raised and ends all choices.
    """

    def __init__(
        self,
        choices: Sequence[AnswerChoice],
        prompt_tokens: int,
        metrics: ServerMetrics,
        scored: Callable[[AnswerChoice], Awaitable[ScoredPrompt]] | None = None,
        ended: Callable[[], None] = lambda: None,
        *,
        predicted: bool = False,
    ) -> None:
        """`scored` returns the log-probabilities of a prompt as its first choice reports them. `ended` is called when
        no choice runs any more. If `predicted`, usage has the tokens of the client's prediction."""
        self._ended = ended
        self._predicted = predicted
        self.choices = choices
        self._scored = scored
        self._prompt_tokens = prompt_tokens
        self._metrics = metrics
        self._began = time.perf_counter()
        self._has_output = self._failed = False
        # One slot for each choice: a slow reader delays this queue, not the engine.
        self._pieces: asyncio.Queue[Piece | InferenceError] = asyncio.Queue(maxsize=len(choices))
        self._open = set(choices)
        self._span = around.get()
        self._readers = [asyncio.ensure_future(self._read(choice)) for choice in choices]

    async def _read(self, choice: AnswerChoice) -> None:
        try:
            async for text in choice.texts():
                token_ids, choice.token_ids = choice.token_ids, []
                await self._pieces.put(Piece(choice, text, TokenReport(token_ids, choice.take_tokens())))
            await self._pieces.put(Piece(choice, None, TokenReport(choice.token_ids, choice.take_tokens())))
        except InferenceError as error:
            await self._pieces.put(error)
        except Exception as error:
            failure = BackendError("The answer's tokens could not be decoded.")
            failure.__cause__ = error
            await self._pieces.put(failure)

    def __aiter__(self) -> Answering:
        return self

    async def __anext__(self) -> Piece:
        if not self._open or self._failed:
            raise StopAsyncIteration
        piece = await self._pieces.get()
        if isinstance(piece, InferenceError):
            self._failed = True
            raise piece
        if not self._has_output:
            self._has_output = True
            self._metrics.first_token(self._age)
        if piece.text is None:
            self._open.remove(piece.choice)
            self._metrics.finished(piece.choice.finish_reason, self._age)
        return piece

    async def whole(self) -> list[Finished]:
        """All choices, when all have ended."""
        texts: list[list[str]] = [[] for _ in self.choices]
        tokens: list[list[ScoredToken]] = [[] for _ in self.choices]
        ids: list[list[int]] = [[] for _ in self.choices]
        async for choice, text, report in self:
            texts[choice.index].append(choice.rest if text is None else text)
            tokens[choice.index] += report.scored
            ids[choice.index] += report.ids
        scored = await self._scored_prompts()
        return [
            Finished(
                "".join(texts[choice.index]), choice.finish_reason, tokens[choice.index], ids[choice.index],
                scored.get(choice.prompt),
            )
            for choice in self.choices
        ]  # fmt: skip

    async def _scored_prompts(self) -> dict[int, ScoredPrompt]:
        if self._scored is None:
            return {}
        first = {choice.prompt: choice for choice in reversed(self.choices)}
        return {prompt: await self._scored(choice) for prompt, choice in first.items()}

    async def best(self, n: int) -> list[Finished]:
        """The `n` choices of each prompt with the highest mean token probability, the best one first."""
        finished = await self.whole()
        ranked = sorted(self.choices, key=lambda choice: (choice.prompt, -choice.mean_logprob))
        taken = [list(group)[:n] for _, group in groupby(ranked, key=lambda choice: choice.prompt)]
        return [finished[choice.index] for group in taken for choice in group]

    @property
    def usage(self) -> UsageBody:
        """The usage of all pieces read so far."""
        completion = sum([choice.completion_tokens for choice in self.choices])
        # Only the first answer to a prompt counts: the others read the pages that it computed.
        cached = sum({choice.prompt: choice.cached_tokens for choice in reversed(self.choices)}.values())
        return UsageBody(
            self._prompt_tokens, completion, self._prompt_tokens + completion, PromptDetails(cached), self._details()
        )

    def _details(self) -> CompletionDetails | UnsetType:
        thought = [choice.thought_tokens for choice in self.choices if choice.thought_tokens is not None]
        details = CompletionDetails(sum(thought)) if thought else CompletionDetails()
        if self._predicted:
            details.accepted_prediction_tokens = sum([choice.num_confirmed for choice in self.choices])
            proposed = sum([choice.num_predicted for choice in self.choices])
            details.rejected_prediction_tokens = proposed - details.accepted_prediction_tokens
        return details if thought or self._predicted else UNSET

    def close(self) -> None:
        """Cancel all choices that still run. Idempotent."""
        for choice, reader in zip(self.choices, self._readers, strict=True):
            choice.cancel()
            reader.cancel()
        self._ended()
        for _ in self._open:
            self._metrics.finished("error" if self._failed else "abort", self._age)
        self._open.clear()
        if (span := self._span) is not None:
            self._span = None
            record(span, self.choices, self._prompt_tokens)

    @property
    def _age(self) -> float:
        return time.perf_counter() - self._began


class AnswerStream:
    """The body of a streamed answer: events as the pieces arrive, then `[DONE]`.

    A failure becomes an event with an `error`, and no `[DONE]` follows: the client must not take a part for the whole.
    """

    def __init__(self, answering: Answering, writer: AnswerWriter, *, with_usage: bool) -> None:
        self._answering = answering
        self._writer = writer
        self._with_usage = with_usage
        self._unopened = set(range(len(answering.choices)))
        self._first: Piece | None = None
        self._ended = False
        self.failure: InferenceError | None = None
        """The failure that ended the stream."""

    async def begin(self) -> None:
        """Wait for the first piece. Until it arrives the response can still be an error."""
        self._first = await anext(self._answering)

    def __aiter__(self) -> AnswerStream:
        return self

    async def __anext__(self) -> bytes:
        if self._ended:
            raise StopAsyncIteration
        try:
            piece = await self._next()
        except StopAsyncIteration:
            self._ended = True
            return self._closing()
        except InferenceError as error:
            log.error("a stream was interrupted", exc_info=error)
            self._ended, self.failure = True, error
            return sse.encode(openai.encode_error(error, "server_error"))
        return self._events(piece)

    async def aclose(self) -> None:
        self._answering.close()

    async def _next(self) -> Piece:
        first, self._first = self._first, None
        return first if first is not None else await anext(self._answering)

    def _events(self, piece: Piece) -> bytes:
        index, events = piece.choice.index, b""
        if index in self._unopened:
            self._unopened.remove(index)
            if (opening := self._writer.opening(index)) is not None:
                events = sse.encode(opening)
        if piece.text is None:
            choice = piece.choice
            chunks = self._writer.finish(index, choice.rest, choice.finish_reason, piece.report)
        else:
            chunks = self._writer.text(index, piece.text, piece.report)
        return events + b"".join([sse.encode(chunk) for chunk in chunks])

    def _closing(self) -> bytes:
        usage = sse.encode(self._writer.usage(self._answering.usage)) if self._with_usage else b""
        return usage + sse.encode(openai.DONE)
