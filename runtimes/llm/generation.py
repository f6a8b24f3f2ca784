"""From the engine's tokens to an answer's text: one choice, several at once, and a stream of events of them."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from adapters.errors import InferenceError
from adapters.wire import openai, sse
from runtimes.llm.answers import AnswerWriter, Finished, PromptDetails, Usage
from runtimes.llm.detokenizer import Detokenizer, StopStrings
from runtimes.llm.engine import Generation
from runtimes.llm.metrics import Metrics
from runtimes.llm.sequence import FinishReason
from runtimes.llm.tokenizer import Tokenizer

log = logging.getLogger(__name__)


class Choice:
    """One answer to one prompt, as text. `finish_reason`, `completion_tokens` and `rest` are final when `texts` ends.

    `said` are tokens of the answer that somebody has the text of already, as far as it was certain: they bring
    this one to the same state, and what follows is what would have followed there.
    """

    def __init__(
        self,
        index: int,
        generation: Generation,
        tokenizer: Tokenizer,
        stops: Sequence[str],
        said: Sequence[int] = (),
        *,
        prompt: int = 0,
    ) -> None:
        self.index = index
        self.prompt = prompt
        """Which of the request's prompts it answers."""
        self.cached_tokens = 0
        self.finish_reason: FinishReason = "length"
        self.completion_tokens = len(said)
        self.token_ids: list[int] = []
        """Those since they were last taken: all that the text so far, certain or not, was made of."""
        self.rest = ""
        """The text that became certain only by the end. It belongs to the end: whoever has it knows that it came."""
        self._generation = generation
        self._detokenizer = Detokenizer(tokenizer)
        self._stops = StopStrings(stops)
        for token_id in said:
            self._stops.push(self._detokenizer.push(token_id))
        if self._stops.matched is not None:
            generation.cancel()

    async def texts(self) -> AsyncIterator[str]:
        """Pieces of the answer as they are certain, never empty. Raises EngineDead."""
        async for output in self._generation:
            self.completion_tokens += 1
            self.cached_tokens = output.cached_tokens
            if output.finish_reason is not None:
                self.finish_reason = output.finish_reason
            if output.finish_reason == "stop":
                break  # the token that says so is not part of the text
            self.token_ids.append(output.token_id)
            if text := self._stops.push(self._detokenizer.push(output.token_id)):
                yield text
            if self._stops.matched is not None:
                break
        self._end()

    def cancel(self) -> None:
        """Stop the engine's work on it now. Idempotent."""
        self._generation.cancel()

    def _end(self) -> None:
        if self._stops.matched is None:
            self.rest = self._stops.push(self._detokenizer.flush())
        if self._stops.matched is None:
            self.rest += self._stops.flush()
        else:
            self.finish_reason = "stop"
            self.cancel()


class Piece(NamedTuple):
    """What one of several choices said next; `text` None is its end."""

    choice: Choice
    text: str | None
    token_ids: Sequence[int] = ()


class Answering:
    """One request's choices, read together; iterates over their pieces in the order in which they come.

    The first failure ends it: it is raised, and the others' work is not wanted without the one that failed.
    """

    def __init__(self, choices: Sequence[Choice], prompt_tokens: int, metrics: Metrics) -> None:
        self.choices = choices
        self._prompt_tokens = prompt_tokens
        self._metrics = metrics
        self._began = time.perf_counter()
        self._said_anything = self._failed = False
        # One place for each choice: who reads slowly slows the reading down, not the engine.
        self._pieces: asyncio.Queue[Piece | Exception] = asyncio.Queue(maxsize=len(choices))
        self._open = set(choices)
        self._readers = [asyncio.ensure_future(self._read(choice)) for choice in choices]

    async def _read(self, choice: Choice) -> None:
        try:
            async for text in choice.texts():
                token_ids, choice.token_ids = choice.token_ids, []
                await self._pieces.put(Piece(choice, text, token_ids))
            await self._pieces.put(Piece(choice, None))
        except Exception as error:
            await self._pieces.put(error)

    def __aiter__(self) -> "Answering":
        return self

    async def __anext__(self) -> Piece:
        if not self._open or self._failed:
            raise StopAsyncIteration
        piece = await self._pieces.get()
        if isinstance(piece, Exception):
            self._failed = True
            raise piece
        if not self._said_anything:
            self._said_anything = True
            self._metrics.first_token(self._age)
        if piece.text is None:
            self._open.remove(piece.choice)
            self._metrics.finished(piece.choice.finish_reason, self._age)
        return piece

    async def whole(self) -> list[Finished]:
        """All choices, when all have ended."""
        texts: list[list[str]] = [[] for _ in self.choices]
        async for choice, text, _ in self:
            texts[choice.index].append(choice.rest if text is None else text)
        return [Finished("".join(texts[choice.index]), choice.finish_reason) for choice in self.choices]

    @property
    def usage(self) -> Usage:
        """What was read so far."""
        completion = sum([choice.completion_tokens for choice in self.choices])
        # The first of several answers to a prompt tells: the others find what that one computed.
        cached = sum({choice.prompt: choice.cached_tokens for choice in reversed(self.choices)}.values())
        return Usage(self._prompt_tokens, completion, self._prompt_tokens + completion, PromptDetails(cached))

    def close(self) -> None:
        """Free whatever still runs, now. Idempotent."""
        for choice, reader in zip(self.choices, self._readers, strict=True):
            choice.cancel()
            reader.cancel()
        for _ in self._open:
            self._metrics.finished("error" if self._failed else "abort", self._age)
        self._open.clear()

    @property
    def _age(self) -> float:
        return time.perf_counter() - self._began


class EventStream:
    """The body of a streamed answer: events as the pieces come, then `[DONE]`.

    A failure becomes an event with an `error`, and no `[DONE]` follows: the client must not take a part for
    the whole.
    """

    def __init__(
        self, answering: Answering, writer: AnswerWriter, *, with_usage: bool, with_token_ids: bool = False
    ) -> None:
        self._answering = answering
        self._writer = writer
        self._with_usage = with_usage
        self._with_token_ids = with_token_ids
        self._unopened = set(range(len(answering.choices)))
        self._first: Piece | None = None
        self._ended = False
        self.failure: InferenceError | None = None
        """Why it broke off."""

    async def begin(self) -> None:
        """Wait for the first piece. Until it is there the request can still be answered with an error."""
        self._first = await anext(self._answering)

    def __aiter__(self) -> "EventStream":
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
            log.error("a stream broke off", exc_info=error)
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
            return events + sse.encode(self._writer.finish(index, piece.choice.rest, piece.choice.finish_reason))
        token_ids = piece.token_ids if self._with_token_ids else None
        return events + sse.encode(self._writer.text(index, piece.text, token_ids))

    def _closing(self) -> bytes:
        usage = sse.encode(self._writer.usage(self._answering.usage)) if self._with_usage else b""
        return usage + sse.encode(openai.DONE)
