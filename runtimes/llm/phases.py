"""The phases of a traced request: the wait, the prompt and the answer of each choice; the batches of its texts."""

from __future__ import annotations

from collections.abc import Sequence

from adapters.spans import Attribute, Span
from runtimes.llm.api.choice import AnswerChoice
from runtimes.llm.engine.sequence import PhaseTimes
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
