"""The fields of a request that control sampling: OpenAI's, and vLLM's additions."""

from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from adapters.errors import CallerError
from adapters.wire.decoding import whole_number
from runtimes.llm.sampling_params import (
    MAX_BIASED,
    MAX_COUNT,
    MAX_REPETITION_PENALTY,
    MAX_TOP_LOGPROBS,
    MIN_REPETITION_PENALTY,
    BadWords,
    SamplingParams,
)
from runtimes.llm.weights.generation_config import SamplingDefaults

MAX_CHOICES = 128
MAX_STOPS = MAX_BAD_WORDS = 1024
MAX_STOP_LENGTH = MAX_BAD_WORD_LENGTH = 256
MAX_TEXTS_LENGTH = 16 * 1024
"""Characters of all stop strings of a request, and of all its bad words."""
MAX_STOP_TOKENS = 64

_Penalty = Annotated[float, Meta(ge=-2, le=2)]
TokenId = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]


def check_ids(param: str, ids: Iterable[int], vocab_size: int) -> None:
    """Raise CallerError that names the first of `ids` that is not below `vocab_size`."""
    for token_id in ids:
        if token_id >= vocab_size:
            message = f"`{param}` has token {token_id}: this model's are 0 to {vocab_size - 1}."
            raise CallerError(message, param=param)


class SamplingFields(msgspec.Struct, kw_only=True):
    """`top_k`, `min_p`, `min_tokens`, `repetition_penalty`, `stop_token_ids`, `include_stop_str_in_output`,
    `ignore_eos`, `bad_words`, `skip_special_tokens` and `prompt_logprobs` are vLLM's; `top_k` -1 or 0 is none.

    The keys of `logit_bias` are token ids as text, since JSON's keys are texts.
    """

    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    max_tokens: Count | None = None
    min_tokens: Count | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=MAX_COUNT)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    presence_penalty: _Penalty | None = None
    frequency_penalty: _Penalty | None = None
    repetition_penalty: Annotated[float, Meta(ge=MIN_REPETITION_PENALTY, le=MAX_REPETITION_PENALTY)] | None = None
    logit_bias: dict[str, float] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: str | list[str] | None = None
    stop_token_ids: Annotated[list[TokenId], Meta(max_length=MAX_STOP_TOKENS)] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    bad_words: list[str] | None = None
    skip_special_tokens: bool | None = None
    prompt_logprobs: Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    def check(self) -> None:
        """Raise CallerError for values that the types of the fields do not exclude."""
        _check_texts("stop", self.stops, MAX_STOPS, MAX_STOP_LENGTH)
        _check_texts("bad_words", self.bad_words or (), MAX_BAD_WORDS, MAX_BAD_WORD_LENGTH)
        if len(self.logit_bias or ()) > MAX_BIASED:
            raise CallerError(f"`logit_bias` takes up to {MAX_BIASED} tokens.", param="logit_bias")
        for token, bias in (self.logit_bias or {}).items():
            if whole_number(token) is None:
                message = f"`logit_bias` is for token ids: {token[:40]!r} is not a token id."
                raise CallerError(message, param="logit_bias")
            if not -100 <= bias <= 100:
                message = f"`logit_bias` must be -100 to 100: {bias:g} for token {token} is not."
                raise CallerError(message, param="logit_bias")

    def check_tokens(self, vocab_size: int) -> None:
        """Raise CallerError that names the first token outside a vocabulary of that size."""
        check_ids("logit_bias", map(int, self.logit_bias or ()), vocab_size)
        check_ids("stop_token_ids", self.stop_token_ids or (), vocab_size)

    def params(
        self,
        max_tokens: int,
        *,
        choice: int,
        eos_token_ids: frozenset[int],
        logprobs: int | None,
        prompt_logprobs: int | None,
        bad_words: BadWords | None,
        defaults: SamplingDefaults,
    ) -> SamplingParams:
        """The parameters of one choice. Raises CallerError if `max_tokens` is below `min_tokens`."""
        if (self.min_tokens or 0) > max_tokens:
            message = f"`min_tokens` is {self.min_tokens}, but the answer may have {max_tokens} tokens."
            raise CallerError(message, param="min_tokens")
        ignore_eos = self.ignore_eos or False
        return SamplingParams(
            max_tokens=max_tokens,
            temperature=defaults.temperature if self.temperature is None else self.temperature,
            top_p=defaults.top_p if self.top_p is None else self.top_p,
            top_k=defaults.top_k if self.top_k is None else max(self.top_k, 0),
            min_p=defaults.min_p if self.min_p is None else self.min_p,
            # Choices of one request must differ, and the first one equals that of `n` = 1.
            seed=None if self.seed is None else (self.seed + choice + 2**63) % 2**64 - 2**63,
            stop_token_ids=frozenset(self.stop_token_ids or ()) | (frozenset() if ignore_eos else eos_token_ids),
            ignore_eos=ignore_eos,
            min_tokens=self.min_tokens or 0,
            presence_penalty=self.presence_penalty or 0.0,
            frequency_penalty=self.frequency_penalty or 0.0,
            repetition_penalty=(
                defaults.repetition_penalty if self.repetition_penalty is None else self.repetition_penalty
            ),
            logit_bias={int(token): bias for token, bias in (self.logit_bias or {}).items()},
            logprobs=logprobs,
            prompt_logprobs=prompt_logprobs,
            bad_words=bad_words,
        )


def _check_texts(param: str, texts: Sequence[str], most: int, longest: int) -> None:
    """Raise CallerError for too many texts, an empty one, or too many characters."""
    if len(texts) > most or not all(0 < len(text) <= longest for text in texts):
        message = f"`{param}` takes up to {most} strings of 1 to {longest} characters."
        raise CallerError(message, param=param)
    if sum(map(len, texts)) > MAX_TEXTS_LENGTH:
        raise CallerError(f"The strings of `{param}` have more than {MAX_TEXTS_LENGTH} characters.", param=param)
