"""Properties of an LLM's answer that the conditions of a cascade read.

Quantiles of the tokens' log-probabilities are better signals than their sum or mean, which depend on the length
(Gupta et al., https://arxiv.org/abs/2404.10136). Agreement of cheap models is better than the confidence of one
(https://arxiv.org/abs/2509.21837): see `agreement.py`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isnan, nan

from config.expressions import BOOL, FLOAT, STRING, Expression, ExpressionError, NumberType, StringType, Variable
from config.expressions.types import Path, Value

QUANTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99)
"""Percentiles that conditions read, as ``logprob.p01`` to ``logprob.p99``."""
FINISH_REASONS = ("stop", "length", "tool_calls", "content_filter")
MAX_REASON = 200
"""Characters of one value in a reason."""
_LOGPROB = Variable(NumberType(integer=False, high=0.0))
_COUNT = Variable(NumberType(True, 0, inf))
VARIABLES: Mapping[Path, Variable] = {
    ("answer",): Variable(STRING),
    ("finish",): Variable(StringType(FINISH_REASONS)),
    ("refusal",): Variable(BOOL),
    ("length", "characters"): _COUNT,
    ("length", "tokens"): _COUNT,
    ("tool_calls",): _COUNT,
    ("agreement",): Variable(NumberType(False, 0.0, 1.0)),
    ("score",): Variable(FLOAT),
    ("logprob", "min"): _LOGPROB,
    ("logprob", "mean"): _LOGPROB,
    **{("logprob", f"p{percent:02}"): _LOGPROB for percent in QUANTILES},
}
"""Variables of a condition. All are required: an answer without one of them, such as a server's answer without
log-probabilities, does not fulfil a condition that reads it."""


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
    """The variables of an answer, except `agreement` and `score`. Values that the answer lacks are absent."""
    values: dict[Path, Value] = {
        ("answer",): answer.text,
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


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Whether an answer fulfils a condition, and the values that determine this."""

    accepted: bool
    reason: str


def accept(condition: Expression, values: Mapping[Path, Value]) -> Acceptance:
    """Evaluate a condition. A condition that has no result, because a value is absent or NaN, is not fulfilled."""
    try:
        accepted = condition.evaluate(values) is True
    except ExpressionError as error:
        return Acceptance(False, str(error))
    read = [path for path in condition.references if path in values]
    return Acceptance(accepted, ", ".join(f"{'.'.join(path)} = {_shown(values[path])}" for path in read))


def _shown(value: Value) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text if len(text) <= MAX_REASON else text[:MAX_REASON] + "…"
