"""One request's state, and what the scheduler and the model runner tell each other about it.

All of it is plain data: no tensor, no lock, no callback. `Chunk` and `Batch` go from the scheduler to the
runner, `TokenOutput` from the scheduler to whoever asked.
"""

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FinishReason = Literal["stop", "length"]
Pooling = Literal["mean", "last", "cls"]
"""How the hidden states of a text's tokens become one vector: their mean, the last one, or the first."""

_SEED_BITS = 64


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to choose each next token, and when to stop.

    `temperature` 0 is greedy; `top_k` 0 and `top_p` 1 mean no restriction. With a `seed` the same prompt gets
    the same choices whatever else shares the batch; without one, chance is drawn from the operating system.
    `max_tokens` 0 checks the prompt and generates nothing. Raises ValueError for anything out of range.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        if self.max_tokens < 0:
            raise ValueError(f"max_tokens must be 0 or more, not {self.max_tokens}")
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature must be a finite number, 0 or more, not {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be over 0 and at most 1, not {self.top_p}")
        if self.top_k < 0:
            raise ValueError(f"top_k must be 0 (no restriction) or more, not {self.top_k}")
        if self.seed is not None and not -(2**63) <= self.seed < 2**63:
            raise ValueError(f"seed must fit a signed 64-bit integer, not {self.seed}")


@dataclass(eq=False, slots=True)
class Sequence:
    """A prompt and what has been generated for it.

    There is no prefill or decode state: `num_computed` tokens have their keys and values in the cache and each
    step lets that number catch up with `len(token_ids)`. Preemption just sets it back to 0.
    """

    id: int
    token_ids: list[int]
    params: SamplingParams
    stop_token_ids: frozenset[int] = frozenset()
    num_computed: int = 0
    block_table: list[int] = field(default_factory=list)
    salt: bytes = b""
    """Up to 64 bytes: only sequences with the same one share pages."""
    digests: list[bytes] = field(default_factory=list, repr=False)
    """Of its full pages, as far as they were wanted."""
    num_kept: int = 0
    """Full pages that others may find."""
    num_cached: int = 0
    """Prompt tokens that did not have to be computed."""
    pooling: Pooling | None = None
    """Of a text to embed, which has no answer."""
    pooled: "NDArray[np.float32] | None" = field(default=None, repr=False)
    """What its vector is made of, as far as it is computed."""
    num_prompt_tokens: int = field(init=False)
    seed: int = field(init=False)

    def __post_init__(self) -> None:
        self.num_prompt_tokens = len(self.token_ids)
        seed = self.params.seed
        # Drawn once, so that a preempted sequence goes on with the chance it began with.
        self.seed = secrets.randbits(_SEED_BITS) if seed is None else seed % 2**_SEED_BITS

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def num_generated(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    def chunk(self, max_tokens: int) -> "Chunk":
        """The next tokens to compute, `max_tokens` at most."""
        start, end = self.num_computed, min(len(self.token_ids), self.num_computed + max_tokens)
        return Chunk(
            sequence_id=self.id,
            start=start,
            token_ids=tuple(self.token_ids[start:end]),
            block_table=tuple(self.block_table),
            samples=end == len(self.token_ids),
            params=self.params,
            seed=self.seed,
            pooling=self.pooling,
        )


@dataclass(frozen=True, slots=True)
class Chunk:
    """One sequence's share of a step: run `token_ids`, which begin at position `start`.

    `block_table` names the KV pages of positions 0 … `end` - 1, and may name more. `samples` says that the last
    token is the newest one known, so its logits choose the token at position `end`.
    """

    sequence_id: int
    start: int
    token_ids: tuple[int, ...]
    block_table: tuple[int, ...]
    samples: bool
    params: SamplingParams
    seed: int
    pooling: Pooling | None = None

    @property
    def end(self) -> int:
        return self.start + len(self.token_ids)


@dataclass(frozen=True, slots=True)
class Batch:
    """One step's work, oldest sequence first; at most one chunk a sequence. `pooled` are those of texts to embed."""

    chunks: tuple[Chunk, ...]
    pooled: tuple[Chunk, ...] = ()

    @classmethod
    def of(cls, chunks: list[Chunk]) -> "Batch":
        """All of a step's chunks, of both kinds."""
        pooled = tuple([chunk for chunk in chunks if chunk.pooling is not None])
        return cls(tuple([chunk for chunk in chunks if chunk.pooling is None]) if pooled else tuple(chunks), pooled)

    @property
    def num_tokens(self) -> int:
        return sum(len(chunk.token_ids) for chunk in self.chunks + self.pooled)


@dataclass(frozen=True, slots=True)
class TokenOutput:
    """One generated token. The last of a sequence says why it is the last; a "stop" token is no text."""

    token_id: int
    finish_reason: FinishReason | None = None
    cached_tokens: int = 0
    """Prompt tokens that were found in the prefix cache."""
    pooled: "NDArray[np.float32] | None" = field(default=None, repr=False)
    """Of a text to embed, whose only output it is: its vector. Then there is no token."""
