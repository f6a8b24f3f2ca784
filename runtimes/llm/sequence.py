"""The state of one answer, and the data that the scheduler and the model runner exchange.

All of it is plain data: no lock, no callback. Only an adapter is the executor's own, and the rows of pictures are
tensors. `Chunk` and `StepBatch` go from the scheduler to the runner, `Sampled` returns, and `TokenOutput` goes from the
scheduler to the caller.
"""

import secrets
from array import array
from collections import ChainMap, abc
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from adapters.errors import InferenceError
from runtimes.llm.picture_rows import PictureRows
from runtimes.llm.sampling_params import SamplingParams
from runtimes.llm.standing import DEFAULT_STANDING, Standing
from runtimes.llm.states import HeldSlots, StateUse

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


__all__ = [
    "DEFAULT_STANDING",
    "Chunk",
    "Constraint",
    "FinishReason",
    "PhaseTimes",
    "Pooling",
    "Sampled",
    "SamplingParams",
    "Sequence",
    "Standing",
    "StepAdapter",
    "StepBatch",
    "TokenLogprobs",
    "TokenOutput",
    "TokenTally",
]

FinishReason = Literal["stop", "length"]
Pooling = Literal["mean", "last", "cls"]
"""The method that makes one vector of the hidden states of a text's tokens: their mean, the last one, or the first."""

_SEED_BITS = 64
_NONE: frozenset[int] = frozenset()


class Constraint(Protocol):
    """The rules of a grammar for the next token. It belongs to one sequence and ends with it."""

    @property
    def free(self) -> bool:
        """Whether every token is allowed, so that no mask is needed."""

    def mask(self) -> bytes:
        """One bit for each token id, the lowest of a byte first: 1 for an allowed token; ids beyond its end are
        excluded.
        """

    def advance(self, token_id: int) -> None:
        """Advance by the sampled `token_id`. Raises InferenceError if no token can follow."""


class StepAdapter(Protocol):
    """What changes the model for some sequences, in the form of the executor that made it."""

    @property
    def digest(self) -> bytes:
        """Up to 64 bytes, equal for adapters of equal numbers."""


class TokenTally:
    """The counts of generated tokens, for penalties: one addition for each token, at any length.

    `ids` are the counted tokens, in the order of their first occurrence; `counts` has their numbers, 0 for tokens of
    the prompt only.
    """

    __slots__ = ("_places", "counts", "ids")

    def __init__(self, prompt: Iterable[int], generated: Iterable[int]) -> None:
        self.ids = array("q", dict.fromkeys(prompt))
        self.counts = array("f", bytes(4 * len(self.ids)))
        self._places: MutableMapping[int, int] = {token_id: place for place, token_id in enumerate(self.ids)}
        for token_id in generated:
            self.add(token_id)

    def add(self, token_id: int) -> None:
        place = self._places.setdefault(token_id, len(self.ids))
        if place == len(self.ids):
            self.ids.append(token_id)
            self.counts.append(0)
        self.counts[place] += 1

    def after(self, token_ids: Iterable[int]) -> "TokenTally":
        """A copy with these tokens added, valid until the next `add` to this one."""
        other = TokenTally((), ())
        other.ids, other.counts, other._places = self.ids[:], self.counts[:], ChainMap({}, self._places)
        for token_id in token_ids:
            other.add(token_id)
        return other


@dataclass(slots=True)
class PhaseTimes:
    """When the phases of a traced sequence began, on the engine's clock; 0 before. The engine's thread writes them."""

    submitted: float
    started: float = 0.0
    """Its first step: the end of its wait."""
    first_token: float = 0.0
    last_token: float = 0.0
    preemptions: int = 0


@dataclass(eq=False, slots=True)
class Sequence:
    """A prompt and the tokens generated for it.

    There is no prefill or decode state: `num_computed` tokens have their keys and values in the cache, and each step
    increases that number towards `len(token_ids)`. Preemption sets it back to 0.
    """

    id: int
    token_ids: list[int]
    params: SamplingParams
    stop_token_ids: frozenset[int] = frozenset()
    num_computed: int = 0
    block_table: list[int] = field(default_factory=list)
    salt: bytes = b""
    """Up to 64 bytes: only sequences with the same one share pages."""
    adapter: StepAdapter | None = None
    pictures: PictureRows | None = None
    digests: list[bytes] = field(default_factory=list, repr=False)
    """Digests of its full pages, as far as they have been computed."""
    num_indexed: int = 0
    """Full pages in the index of the prefix cache."""
    state: HeldSlots | None = None
    """Of a model with recurrent layers, while it runs."""
    num_cached: int = 0
    """Prompt tokens from the prefix cache."""
    pooling: Pooling | None = None
    """The limits of a text to embed, which has no answer."""
    pooled: "NDArray[np.float32] | None" = field(default=None, repr=False)
    """The partial vector of the chunks computed so far."""
    second_part: int | None = None
    """The place of the first token of a pair's second text."""
    num_continued: int = 0
    """The number of first tokens that belong to the answer, not to the prompt."""
    constraint: Constraint | None = None
    prediction: abc.Sequence[int] = ()
    """The tokens that the client expects as the answer."""
    predicted_ahead: range = range(0)
    """Those among the proposals of the step that runs, by their places."""
    num_predicted: int = 0
    """Tokens of the prediction that were proposed; `num_confirmed` of them were accepted."""
    num_confirmed: int = 0
    prompt_logprobs: list["TokenLogprobs"] = field(default_factory=list, repr=False)
    """From the prompt's second token on, if requested."""
    standing: Standing = DEFAULT_STANDING
    arrived: float = 0.0
    started: float | None = None
    """The time of its first step."""
    num_charged: int = 0
    """Tokens that its tenant has been charged for."""
    times: PhaseTimes | None = None
    """Of a traced sequence."""
    tally: TokenTally | None = field(init=False, repr=False, default=None)
    num_prompt_tokens: int = field(init=False)
    seed: int = field(init=False)

    def __post_init__(self) -> None:
        self.num_prompt_tokens = end = len(self.token_ids) - self.num_continued
        if self.params.penalizes:
            minded = end if self.params.repetition_penalty != 1 else 0
            self.tally = TokenTally(self.token_ids[:minded], self.token_ids[end:])
        seed = self.params.seed
        # Drawn once, so that a preempted sequence continues with the same random numbers.
        self.seed = secrets.randbits(_SEED_BITS) if seed is None else seed % 2**_SEED_BITS

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def num_generated(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def may_take_over(self) -> bool:
        """Whether cached pages can replace its computation.

        They have only keys and values, but a vector may need the hidden state of every token, and the prompt's
        log-probabilities need the logits after each.
        """
        return self.pooling in (None, "last") and self.params.prompt_logprobs is None

    @property
    def begun(self) -> bool:
        """Whether a token of its answer was generated here."""
        return self.num_generated > self.num_continued

    def chunk(self, max_tokens: int) -> "Chunk":
        """The chunk of its next tokens, `max_tokens` at most."""
        start, end = self.num_computed, min(len(self.token_ids), self.num_computed + max_tokens)
        params = self.params
        return Chunk(
            sequence_id=self.id,
            start=start,
            token_ids=tuple(self.token_ids[start:end]),
            block_table=self.block_table,
            samples=end == len(self.token_ids),
            params=params,
            seed=self.seed,
            pooling=self.pooling,
            second_part=self.second_part,
            banned=self._banned(),
            tally=self.tally,
            constraint=None if self.constraint is None or self.constraint.free else self.constraint,
            targets=() if params.prompt_logprobs is None else self._targets(start, end),
            adapter=self.adapter,
            pictures=None if self.pictures is None or start >= self.pictures.end else self.pictures,
            state=None if self.state is None else self.state.use(start, end),
        )

    def speculation(self, proposed: abc.Sequence[int]) -> "Chunk":
        """The chunk of its newest token and of `proposed` ones behind it."""
        newest = self.chunk(1)
        steps = [newest, *(self.after(newest, proposed[:count]) for count in range(1, len(proposed) + 1))]
        return newest.with_steps(steps)

    def after(self, newest: "Chunk", proposed: abc.Sequence[int]) -> "Chunk":
        """The chunk of the last `proposed` token, behind the `newest` one and the other proposed ones."""
        tally = None if self.tally is None else self.tally.after(proposed)
        start, banned = newest.start + len(proposed), self._banned(proposed)
        return replace(newest, start=start, token_ids=(proposed[-1],), banned=banned, tally=tally)

    def append(self, token_id: int) -> None:
        """Append a generated token."""
        self.token_ids.append(token_id)
        if self.tally is not None:
            self.tally.add(token_id)
        if self.constraint is not None:
            self.constraint.advance(token_id)

    def confirm(self, proposed: int, right: int) -> None:
        """Count the tokens of the prediction in a step that accepted `right` of `proposed` tokens."""
        ahead, self.predicted_ahead = self.predicted_ahead, range(0)
        self.num_predicted += len(range(ahead.start, min(ahead.stop, proposed)))
        self.num_confirmed += len(range(ahead.start, min(ahead.stop, right)))

    def _banned(self, proposed: abc.Sequence[int] = ()) -> frozenset[int]:
        """The tokens that are excluded next, after `proposed` ones."""
        stops = self.stop_token_ids if self.num_generated + len(proposed) < self.params.min_tokens else _NONE
        if self.params.bad_words is None:
            return stops
        token_ids = [*self.token_ids, *proposed] if proposed else self.token_ids
        bad = self.params.bad_words.banned(token_ids, self.num_prompt_tokens)
        return bad | stops if stops else bad

    def _targets(self, start: int, end: int) -> tuple[int, ...]:
        return tuple(self.token_ids[start + 1 : min(end + 1, self.num_prompt_tokens)])


@dataclass(frozen=True, slots=True)
class Chunk:
    """One sequence's part of a step: run `token_ids`, which begin at position `start`.

    `block_table` names the KV pages of positions 0 … `end` - 1, and may name more. It is the sequence's own, not copied
    in every step: while a step runs the scheduler adds nothing to it, and freeing a sequence does not change it. With
    `samples` the last token is the newest one, so its logits select the token at position `end`.
    """

    sequence_id: int
    start: int
    token_ids: tuple[int, ...]
    block_table: abc.Sequence[int]
    samples: bool
    params: SamplingParams
    seed: int
    pooling: Pooling | None = None
    banned: frozenset[int] = _NONE
    tally: TokenTally | None = None
    constraint: Constraint | None = None
    targets: tuple[int, ...] = ()
    second_part: int | None = None
    adapter: StepAdapter | None = None
    pictures: PictureRows | None = None
    """Of its sequence; None behind the last one."""
    state: StateUse | None = None
    """Of a model with recurrent layers."""
    steps: "tuple[Chunk, ...]" = ()
    """With proposed tokens behind the newest one: the chunks of one token each that would compute the same."""

    @property
    def num_proposed(self) -> int:
        return len(self.token_ids) - 1 if self.steps else 0

    @property
    def end(self) -> int:
        return self.start + len(self.token_ids)

    def with_steps(self, steps: "abc.Sequence[Chunk]") -> "Chunk":
        """This chunk and those behind it, of one token each, as one."""
        return replace(self, token_ids=tuple([step.token_ids[0] for step in steps]), steps=tuple(steps))


@dataclass(frozen=True, slots=True)
class StepBatch:
    """One step's work; at most one chunk for each sequence.

    The first `num_decodes` chunks are of sequences that only need their next token, the others of prompts. `pooled` are
    those of texts to embed. `num_proposed` tokens of all are proposals.
    """

    chunks: tuple[Chunk, ...]
    pooled: tuple[Chunk, ...] = ()
    num_decodes: int = 0
    num_proposed: int = 0

    @classmethod
    def of(cls, decodes: list[Chunk], prompts: list[Chunk]) -> "StepBatch":
        """All of a step's chunks; some of the prompts may be texts to embed."""
        pooled = tuple([chunk for chunk in prompts if chunk.pooling is not None])
        answered = [chunk for chunk in prompts if chunk.pooling is None] if pooled else prompts
        proposed = sum([chunk.num_proposed for chunk in decodes])
        return cls((*decodes, *answered), pooled, len(decodes), proposed)

    def proposing(self, chunks: "abc.Mapping[int, Chunk]") -> "StepBatch":
        """The batch with chunks in place of those of the same sequences, by sequence id."""
        made = tuple([chunks.get(chunk.sequence_id, chunk) for chunk in self.chunks])
        return replace(self, chunks=made, num_proposed=sum([chunk.num_proposed for chunk in made]))

    @property
    def num_tokens(self) -> int:
        return sum(len(chunk.token_ids) for chunk in self.chunks + self.pooled)

    @property
    def num_prompt_tokens(self) -> int:
        return self.num_tokens - self.num_decodes - self.num_proposed


class TokenLogprobs(NamedTuple):
    """The model's own log-probability of a token in its place, and the likeliest there, (token id, log-probability).

    Of the logits as the model gave them, before bias, penalties, temperature and the rest.
    """

    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    rank: int = 0
    """The place of a prompt's token among all that could come there, the likeliest is 1. 0 for an answer's token."""


class Sampled(NamedTuple):
    """A step's result for one chunk: the next token, -1 if the chunk does not sample; or the `error` that ends it."""

    token_id: int
    logprobs: TokenLogprobs | None = None
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    """The log-probabilities of the chunk's `targets`."""
    error: InferenceError | None = None
    before: "tuple[Sampled, ...]" = ()
    """The results of the positions before this one, whose proposals were accepted."""


@dataclass(frozen=True, slots=True)
class TokenOutput:
    """One generated token. The last token of a sequence has the finish reason; a "stop" token is not text.

    With an `error` there is no token, and none follows.
    """

    token_id: int
    finish_reason: FinishReason | None = None
    cached_tokens: int = 0
    """Prompt tokens from the prefix cache."""
    pooled: "NDArray[np.float32] | None" = field(default=None, repr=False)
    """The vector of a text to embed, which is its only output. Then there is no token."""
    logprobs: TokenLogprobs | None = None
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    """With the first token, if requested: from the prompt's second token on."""
    error: InferenceError | None = None
    before: "tuple[TokenOutput, ...]" = ()
    """The tokens before this one that the same step has generated."""
    num_predicted: int = 0
    """Tokens of the client's prediction that were proposed so far; `num_confirmed` of them were accepted."""
    num_confirmed: int = 0

    @property
    def ends(self) -> bool:
        return self.finish_reason is not None or self.error is not None
