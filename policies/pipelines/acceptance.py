"""Properties of an LLM's answer that the conditions of a cascade read.

Quantiles of the tokens' log-probabilities are better signals than their sum or mean, which depend on the length
(Gupta et al., https://arxiv.org/abs/2404.10136). Agreement of cheap models is better than the confidence of one
(https://arxiv.org/abs/2509.21837): see `agreement.py`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan, nan

from config.expressions.types import Path, Value

QUANTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99)
"""Percentiles that conditions read, as ``logprob.p01`` to ``logprob.p99``."""
FINISH_REASONS = ("stop", "length", "tool_calls", "content_filter")


@dataclass(frozen=True, slots=True)
class GeneratedAnswer:
    """One answer of a language model."""

    text: str
    finish: str | None = None
    """OpenAI's finish reason; None if the answer is not complete."""
    refusal: str | None = None
    """OpenAI's field ``refusal``."""
    logprobs: Sequence[float] = ()
    """Natural log-probabilities of the answer's tokens."""
    tokens: int | None = None
    """Tokens of the answer, if they are known."""
    tool_calls: int = 0


def values_of(answer: GeneratedAnswer) -> dict[Path, Value]:
    """The values of an answer. Values that the answer lacks are absent."""
    values: dict[Path, Value] = {
        ("text",): answer.text,
        ("refusal",): is_refusal(answer),
        ("length", "characters"): len(answer.text),
        ("tool_calls",): answer.tool_calls,
    }
    if answer.finish is not None:
        values["finish",] = answer.finish
    tokens = answer.tokens if answer.tokens is not None else len(answer.logprobs) or None
    if tokens is not None:
        values["length", "tokens"] = tokens
    if answer.logprobs:
        values |= {("logprob", name): value for name, value in logprob_values(answer.logprobs).items()}
    return values


def logprob_values(logprobs: Sequence[float]) -> dict[str, float]:
    """Minimum, mean and quantiles of log-probabilities: NaN if one of them is NaN. Positive values count as 0."""
    names = ("min", "mean", *(f"p{percent:02}" for percent in QUANTILES))
    if any(isnan(value) for value in logprobs):
        return dict.fromkeys(names, nan)
    ordered = sorted([min(float(value), 0.0) for value in logprobs])
    quantiles = [quantile(ordered, percent / 100) for percent in QUANTILES]
    return dict(zip(names, (ordered[0], sum(ordered) / len(ordered), *quantiles), strict=True))


def quantile(ordered: Sequence[float], share: float) -> float:
    """A quantile of sorted values, interpolated linearly (Hyndman and Fan's type 7, numpy's default)."""
    place = share * (len(ordered) - 1)
    below = int(place)
    first, second = ordered[below], ordered[min(below + 1, len(ordered) - 1)]
    if first == second:  # also where both are infinite
        return first
    return first + (second - first) * (place - below) if place > below else first


REFUSAL_CHARACTERS = 240
_SORRY = r"(?:(?:i'm|i am|we're|we are) (?:very |really |so )?sorry|sorry|i apologi[sz]e|unfortunately|my apologies)"
_CANNOT = (
    r"(?:can't|cannot|can not|won't|will not|am unable to|'m unable to|am not able to|'m not able to|"
    r"am not allowed to|'m not allowed to|must decline to|have to decline to|don't feel comfortable)"
)
_HELP = (
    r"(?:help|assist|comply|fulfil|provid|answer|do that|do this|support|creat|generat|engag|discuss|shar|"
    r"continue|participat|writ|giv|offer|complet|process)"
)
_REFUSAL = re.compile(
    rf"(?:{_SORRY}[,.:;!]? (?:but |that )?)?(?:as an ai(?: language)?(?: model| assistant)?,? )?"
    rf"(?:i ?{_CANNOT} (?:be able to )?{_HELP}\w*|(?:i )?must decline\b)"
)


def is_refusal(answer: GeneratedAnswer) -> bool:
    """Whether the answer refuses: OpenAI's field, the finish reason `content_filter`, or the phrase rule.

    The phrase rule is for English. The first 240 characters, with plain apostrophes and single spaces, begin with a
    refusal such as "I'm sorry, but I can't help with that" or "As an AI language model, I cannot provide …".
    """
    if answer.refusal or answer.finish == "content_filter":
        return True
    begin = answer.text[: 2 * REFUSAL_CHARACTERS].replace("\u2019", "'").lower()
    return _REFUSAL.match(" ".join(begin.split())[:REFUSAL_CHARACTERS]) is not None
