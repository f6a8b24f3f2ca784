"""From the engine's tokens to the text of one answer."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass

from runtimes.llm.api.token_logprobs import EchoedPrompt, ToldToken
from runtimes.llm.engine.async_engine import Generation
from runtimes.llm.engine.sequence import FinishReason, TokenLogprobs, TokenOutput
from runtimes.llm.text.detokenizer import Detokenizer
from runtimes.llm.text.stop_strings import StopStrings, StopTable
from runtimes.llm.text.think_parser import ThinkParser
from runtimes.llm.text.tokenizer import Tokenizer

NO_STOPS = StopTable(())


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a choice's text is to be.

    It ends before, or with, the first of `stops` after `min_tokens` tokens. `echo` is its beginning. With
    `only_prompt` there is no more, and what is generated is only the way to the prompt's log-probabilities. `told` is
    for how many of the likeliest tokens log-probabilities are reported; None for no report.
    """

    stops: StopTable = NO_STOPS
    includes_stop: bool = False
    min_tokens: int = 0
    echo: EchoedPrompt | None = None
    only_prompt: bool = False
    told: int | None = None
    shown: Mapping[int, bytes] | None = None
    """Control tokens that are spelled in it."""
    think: Callable[[], ThinkParser] | None = None
    """Finds the thoughts in it."""


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
        wanted: Wanted,
        said: Sequence[int] = (),
        *,
        prompt: int = 0,
    ) -> None:
        self.index = index
        self.prompt = prompt
        """Which of the request's prompts it answers."""
        self.cached_tokens = 0
        self.finish_reason: FinishReason = "length"
        self.completion_tokens = 0
        self.thought_tokens: int | None = None if wanted.think is None else 0
        """Tokens of its thoughts; None for a model that does not think."""
        self.said_text = ""
        """The text that was certain with the tokens of `said`."""
        self.token_ids: list[int] = []
        """Those since they were last taken: all that the text so far, certain or not, was made of."""
        self.rest = ""
        """The text that became certain only by the end. It belongs to the end: whoever has it knows that it came."""
        self.prompt_logprobs: Sequence[TokenLogprobs] = ()
        """From the prompt's second token on, where they are asked for."""
        self._logprob = 0.0
        self._told: list[ToldToken] = []
        self._read = self._certain = 0  # characters: all that tokens made, and those that are of the answer
        self._whole = False
        self._wanted = wanted
        self._generation = generation
        self._detokenizer = Detokenizer(tokenizer, wanted.shown)
        self._stops = StopStrings(wanted.stops, included=wanted.includes_stop)
        self._think = None if wanted.think is None else wanted.think()
        for token_id in said:
            self.completion_tokens += 1
            self.said_text += self._text_of(token_id)
        if self._stops.matched is not None:
            generation.cancel()

    async def texts(self) -> AsyncIterator[str]:
        """Pieces of the answer as they are certain, never empty. Raises EngineDead, or what ended it alone."""
        echo = self._wanted.echo
        if echo is not None and self._wanted.told is None and echo.text:
            yield self._echoed(echo, None)
        async for output in self._generation:
            self.cached_tokens = output.cached_tokens
            if not self.completion_tokens:
                self.prompt_logprobs = output.prompt_logprobs
                if echo is not None and self._wanted.told is not None and (text := self._echoed(echo, output)):
                    yield text
                if self._wanted.only_prompt:
                    break
            if text := self._take(output):
                yield text
            if output.finish_reason == "stop" or self._stops.matched is not None:
                break
        self._end()

    def take_told(self) -> list[ToldToken]:
        """Tokens that begin in the text that is certain, since they were last taken."""
        told = self._told
        ready = len(told)
        if not self._whole:
            ready = next((i for i, token in enumerate(told) if token.offset >= self._certain), ready)
        self._told = told[ready:]
        return told[:ready]

    @property
    def mean_logprob(self) -> float:
        """Of its tokens, where log-probabilities were asked for."""
        return self._logprob / max(self.completion_tokens, 1)

    def cancel(self) -> None:
        """Stop the engine's work on it now. Idempotent."""
        self._generation.cancel()

    def _echoed(self, echo: EchoedPrompt, output: TokenOutput | None) -> str:
        self._read = self._certain = len(echo.text)
        if output is not None:
            self._told += echo.told(output.prompt_logprobs, self._wanted.told or 0)
        return echo.text

    def _take(self, output: TokenOutput) -> str:
        """The text that is certain with this token."""
        self.completion_tokens += 1
        if output.finish_reason is not None:
            self.finish_reason = output.finish_reason
        if output.logprobs is not None:
            self._logprob += output.logprobs.logprob
        if output.finish_reason == "stop" and not self._wanted.includes_stop:
            return ""  # the token that says so is not part of the text
        self.token_ids.append(output.token_id)
        if self._wanted.told is not None:
            self._told.append(ToldToken.of(output.token_id, self._read, output.logprobs))
        return self._text_of(output.token_id)

    def _text_of(self, token_id: int) -> str:
        text = self._detokenizer.push(token_id)
        if self._think is not None and self.thought_tokens is not None:
            self._think.push(text)
            self.thought_tokens += self._think.thinks
        self._read += len(text)
        if self.completion_tokens > self._wanted.min_tokens:
            text = self._stops.push(text)
        self._certain += len(text)
        return text

    def _end(self) -> None:
        if self._stops.matched is None:
            self.rest = self._stops.push(self._detokenizer.flush())
        if self._stops.matched is None:
            self.rest += self._stops.flush()
        self._certain += len(self.rest)
        self._whole = self._stops.matched is None
        if not self._whole:
            self.finish_reason = "stop"
        if not self._whole or self._wanted.only_prompt:
            self.cancel()
