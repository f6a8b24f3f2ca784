"""The sampling of a sequence's tokens. Plain data, validated on construction.

A word of vLLM's `bad_words` is one sequence at the start of a text and another one within it. As in vLLM, the last
token of a sequence is masked where the answer's tokens before it are the rest of the sequence.
"""

import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field


class BadWords:
    """The sequences of one request. All of its answers share it."""

    def __init__(self, sequences: Iterable[Sequence[int]]) -> None:
        unique = {tuple(token_ids) for token_ids in sequences}
        self._always = frozenset([token_ids[0] for token_ids in unique if len(token_ids) == 1])
        self._after: dict[int, list[tuple[tuple[int, ...], int]]] = {}
        """By the last token before it: the other tokens of a sequence before its last one, and the last one."""
        for *before, last in unique:
            if before:
                self._after.setdefault(before[-1], []).append((tuple(before), last))

    def banned(self, token_ids: Sequence[int], begin: int) -> frozenset[int]:
        """The tokens that are excluded after the answer's tokens, which start at `begin`."""
        size = len(token_ids)
        if size == begin or (endings := self._after.get(token_ids[-1])) is None:
            return self._always
        ended = [
            last for before, last in endings
            if len(before) <= size - begin and tuple(token_ids[size - len(before) :]) == before
        ]  # fmt: skip
        return self._always.union(ended) if ended else self._always


def spelled(words: Sequence[str], encode: Callable[[str], list[int]]) -> BadWords:
    """The token sequences of the words: as `encode` returns them, and after a space if that is another sequence of the
    same length.
    """
    sequences = []
    for word in words:
        plain, within = encode(word), encode(" " + word.lstrip())
        sequences.append(plain)
        if within and within[0] != plain[0] and len(within) == len(plain):
            sequences.append(within)
    return BadWords(sequences)


MAX_TOP_LOGPROBS = 20
MAX_BIASED = 1024
MAX_COUNT = 2**31 - 1
"""Type of ids of tokens and candidates."""
GREEDY_BELOW = 1e-5
"""A lower temperature is greedy: division by it would make float32 logits overflow, or divide by zero."""
MIN_REPETITION_PENALTY, MAX_REPETITION_PENALTY = 0.01, 100.0
"""Penalties in this range never make a float32 logit infinite."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """The selection of each next token, and the end of the answer.

    A `temperature` below `GREEDY_BELOW` is greedy and becomes 0; `top_k` 0, `top_p` 1 and `min_p` 0 mean no
    restriction. With a `seed` the same prompt gets the same answer in every batch; without one, the seed
    comes from the operating system. `max_tokens` 0 checks the prompt and generates nothing; before `min_tokens` no stop
    token can occur.

    `logit_bias` is added to the logits of those tokens. The penalties are OpenAI's, which count generated tokens
    (`presence_penalty`, `frequency_penalty`), and Keskar et al.'s, which counts the prompt's too (`repetition_penalty`,
    2019, "CTRL", https://arxiv.org/abs/1909.05858). `logprobs` requests the log-probability of each token and of that
    many of the likeliest alternatives, `prompt_logprobs` those of the prompt. `bad_words` are sequences of tokens that
    do not occur.

    Raises ValueError that begins with the name of the field that is out of range.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    min_tokens: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    bad_words: BadWords | None = field(default=None, compare=False)
    penalizes: bool = field(init=False)
    """Whether sampling depends on the tokens generated before."""
    bias_ids: bytes = field(init=False, repr=False)
    bias_values: bytes = field(init=False, repr=False)
    """`logit_bias` in the sampler's form, int64 and float32: packed once, not in every step."""

    def __post_init__(self) -> None:
        self._check_counts()
        self._check_numbers()
        if self.temperature < GREEDY_BELOW:
            object.__setattr__(self, "temperature", 0.0)
        if self.seed is not None and not -(2**63) <= self.seed < 2**63:
            raise ValueError(f"seed must fit a signed 64-bit integer, not {self.seed}")
        penalizes = bool(self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1)
        object.__setattr__(self, "penalizes", penalizes)
        object.__setattr__(self, "bias_ids", array("q", self.logit_bias.keys()).tobytes())
        object.__setattr__(self, "bias_values", array("f", self.logit_bias.values()).tobytes())

    def _check_counts(self) -> None:
        if not 0 <= self.max_tokens <= MAX_COUNT:
            raise ValueError(f"max_tokens must be 0 to {MAX_COUNT}, not {self.max_tokens}")
        if not 0 <= self.min_tokens <= self.max_tokens:
            raise ValueError(f"min_tokens must be 0 to max_tokens ({self.max_tokens}), not {self.min_tokens}")
        if not 0 <= self.top_k <= MAX_COUNT:
            raise ValueError(f"top_k must be 0 (no restriction) to {MAX_COUNT}, not {self.top_k}")
        for name in ("logprobs", "prompt_logprobs"):
            if (count := getattr(self, name)) is not None and not 0 <= count <= MAX_TOP_LOGPROBS:
                raise ValueError(f"{name} must be 0 to {MAX_TOP_LOGPROBS}, not {count}")

    def _check_numbers(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise ValueError(f"temperature must be a finite number, 0 or more, not {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be over 0 and at most 1, not {self.top_p}")
        if not 0 <= self.min_p <= 1:
            raise ValueError(f"min_p must be 0 to 1, not {self.min_p}")
        for name in ("presence_penalty", "frequency_penalty"):
            if not -2 <= (penalty := getattr(self, name)) <= 2:
                raise ValueError(f"{name} must be -2 to 2, not {penalty}")
        if not MIN_REPETITION_PENALTY <= self.repetition_penalty <= MAX_REPETITION_PENALTY:
            bounds = f"{MIN_REPETITION_PENALTY:g} to {MAX_REPETITION_PENALTY:g}"
            raise ValueError(f"repetition_penalty must be {bounds}, not {self.repetition_penalty}")
        if len(self.logit_bias) > MAX_BIASED:
            raise ValueError(f"logit_bias takes up to {MAX_BIASED} tokens, not {len(self.logit_bias)}")
        for token_id, bias in self.logit_bias.items():
            if not 0 <= token_id < 2**32:
                raise ValueError(f"logit_bias is for token ids: there is no token {token_id}")
            if not -100 <= bias <= 100:
                raise ValueError(f"logit_bias must be -100 to 100, not {bias} as for token {token_id}")
