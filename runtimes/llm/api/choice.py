"""Converts the engine's tokens to the text of one answer."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass

from runtimes.llm.api.token_logprobs import EchoedPrompt, ScoredToken
from runtimes.llm.engine.async_engine import Generation
from runtimes.llm.sequence import FinishReason, PhaseTimes, TokenLogprobs, TokenOutput
from runtimes.llm.text.answer_parser import ThinkParser
from runtimes.llm.text.stop_strings import StopStrings, StopTable
from runtimes.llm.text.tokenizer import Detokenizer, Tokenizer

NO_STOPS = StopTable(())


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceOptions:
    """Options for the conversion of a choice's tokens to its text.

    It ends before, or with, the first of `stops` after `min_tokens` tokens. `echo` is its beginning. With `only_prompt`
    the text is the echo alone: the step serves the prompt's log-probabilities. `num_logprobs` is the number of
    likeliest tokens whose log-probabilities are reported; None reports none.
    """

    stops: StopTable = NO_STOPS
    includes_stop: bool = False
    min_tokens: int = 0
    echo: EchoedPrompt | None = None
    only_prompt: bool = False
    num_logprobs: int | None = None
    shown: Mapping[int, bytes] | None = None
    """Control tokens that appear in the text by their names."""
    think: Callable[[], ThinkParser] | None = None
    """Separates the thoughts from the text."""


class AnswerChoice:
    """One answer to one prompt, as text. `finish_reason`, `completion_tokens` and `rest` are final when `texts` ends.

    `continued` are the first tokens of an answer whose text the client already has. They set the state, and the text
    after them is that of the original answer.
    """

    def __init__(
        self,
        index: int,
        generation: Generation,
        tokenizer: Tokenizer,
        options: ChoiceOptions,
        continued: Sequence[int] = (),
        *,
        prompt: int = 0,
    ) -> None:
        self.index = index
        self.prompt = prompt
        """The index of its prompt in the request."""
        self.cached_tokens = 0
        self.finish_reason: FinishReason = "length"
        self.completion_tokens = 0
        self.thought_tokens: int | None = None if options.think is None else 0
        """Tokens of its thoughts; None for a model that does not think."""
        self.num_predicted = self.num_confirmed = 0
        """Proposed and accepted tokens of the client's prediction."""
        self.continued_text = ""
        """The final text after the tokens of `continued`."""
        self.token_ids: list[int] = []
        """The tokens since they were last taken: those of all text so far, final or not."""
        self.rest = ""
        """Text that is final only at the end; it is sent with the end."""
        self.prompt_logprobs: Sequence[TokenLogprobs] = ()
        """From the prompt's second token on, if requested."""
        self._logprob = 0.0
        self._tokens: list[ScoredToken] = []
        self._read = self._certain = 0  # characters: of all decoded text, and of the answer's part
        self._whole = False
        self._options = options
        self._generation = generation
        self._detokenizer = Detokenizer(tokenizer, options.shown)
        self._stops = StopStrings(options.stops, included=options.includes_stop)
        self._think = None if options.think is None else options.think()
        for token_id in continued:
            self.completion_tokens += 1
            self.continued_text += self._text_of(token_id)
        if self._stops.matched is not None:
            generation.cancel()

    async def texts(self) -> AsyncIterator[str]:
        """Pieces of the answer that are final, never empty. Raises EngineDead, or the error of this answer alone."""
        echo = self._options.echo
        if echo is not None and self._options.num_logprobs is None and echo.text:
            yield self._echoed(echo, None)
        async for output in self._generation:
            self.cached_tokens = output.cached_tokens
            if not self.completion_tokens:
                self.prompt_logprobs = output.prompt_logprobs
                if echo is not None and self._options.num_logprobs is not None and (text := self._echoed(echo, output)):
                    yield text
                if self._options.only_prompt:
                    break
            if text := self._take(output):
                yield text
            if output.finish_reason == "stop" or self._stops.matched is not None:
                break
        self._end()

    def take_tokens(self) -> list[ScoredToken]:
        """Tokens that begin in the final text, since they were last taken."""
        tokens = self._tokens
        ready = len(tokens)
        if not self._whole:
            ready = next((i for i, token in enumerate(tokens) if token.offset >= self._certain), ready)
        self._tokens = tokens[ready:]
        return tokens[:ready]

    @property
    def mean_logprob(self) -> float:
        """The mean log-probability of its tokens, if log-probabilities were requested."""
        return self._logprob / max(self.completion_tokens, 1)

    @property
    def times(self) -> PhaseTimes | None:
        """When its phases began, if it is traced."""
        return self._generation.times

    def cancel(self) -> None:
        """Cancel the sequence now. Idempotent."""
        self._generation.cancel()

    def _echoed(self, echo: EchoedPrompt, output: TokenOutput | None) -> str:
        self._read = self._certain = len(echo.text)
        if output is not None:
            self._tokens += echo.scored_tokens(output.prompt_logprobs, self._options.num_logprobs or 0)
        return echo.text

    def _take(self, output: TokenOutput) -> str:
        """The text that is final with this token."""
        self.completion_tokens += 1
        self.num_predicted, self.num_confirmed = output.num_predicted, output.num_confirmed
        if output.finish_reason is not None:
            self.finish_reason = output.finish_reason
        if output.logprobs is not None:
            self._logprob += output.logprobs.logprob
        if output.finish_reason == "stop" and not self._options.includes_stop:
            return ""  # the stop token is not part of the text
        self.token_ids.append(output.token_id)
        if self._options.num_logprobs is not None:
            self._tokens.append(ScoredToken.of(output.token_id, self._read, output.logprobs))
        return self._text_of(output.token_id)

    def _text_of(self, token_id: int) -> str:
        text = self._detokenizer.push(token_id)
        if self._think is not None and self.thought_tokens is not None:
            self._think.push(text)
            self.thought_tokens += self._think.thinks
        self._read += len(text)
        if self.completion_tokens > self._options.min_tokens:
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
        if not self._whole or self._options.only_prompt:
            self.cancel()
