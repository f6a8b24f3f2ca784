"""Speculation: a step computes proposed tokens behind the newest one, and accepts those that the model would select.

A step of few sequences waits for the weights to come from memory, so a few more positions cost little. Each position
draws its token from the model's own distribution with its own random number, as a step of its own would. A proposal is
accepted if it is that token. For a proposal that is certain this is rejection sampling (Leviathan et al. 2023, "Fast
inference from transformers via speculative decoding", https://arxiv.org/abs/2211.17192): token d is accepted with
probability p(d), and otherwise the token has the distribution p without d. So neither the distribution of answers nor
the answer of a seed changes.

How many tokens are proposed follows from two measurements, and is 0 where proposals would lose time:

Odds         how often predictions were right, by the length of the match. They are compared with every token, proposed
             or not, so that a sequence without proposals is measured too
StepCosts    how much longer a step lasts for each proposed token, by the number of sequences (`step_costs`)

Proposals come from the text itself (`ngram_index`), or from a second, smaller model (`drafts`).
"""

from collections.abc import Callable, Iterable, Set
from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from runtimes.llm.engine.drafts import DraftPlanner
from runtimes.llm.engine.ngram_index import SIZE, NgramIndex
from runtimes.llm.engine.step_costs import MOST_PROPOSED, StepCosts, best_count
from runtimes.llm.sequence import Sequence

if TYPE_CHECKING:
    from runtimes.llm.model.matrix import WeightsName

MAX_TOKENS = 32
_WEIGHTS = ("auto", "unquantized", "int8", "int4", "stored")


@dataclass(frozen=True, slots=True)
class Speculation:
    """`tokens` is the greatest number of tokens that are proposed for a sequence in one step. A `draft_model` proposes
    those of the smaller `model`, whose matrices are stored as `weights`: as the large one's if None. Raises ValueError
    for a combination that is not possible."""

    kind: Literal["ngram", "draft_model"]
    tokens: int = 8
    model: str | None = None
    weights: "WeightsName | None" = None

    def __post_init__(self) -> None:
        if self.kind not in ("ngram", "draft_model"):
            raise ValueError(f"speculation is of kind ngram or draft_model, not {self.kind}")
        if self.kind == "draft_model" and not (isinstance(self.model, str) and self.model):
            raise ValueError("speculation of kind draft_model needs a model: the small one that proposes")
        for name in ("model", "weights"):
            if self.kind == "ngram" and getattr(self, name) is not None:
                raise ValueError(f"speculation of kind ngram has no {name}: no second model proposes")
        if self.weights is not None and self.weights not in _WEIGHTS:
            raise ValueError(f"speculation has weights {', '.join(_WEIGHTS)}, not {self.weights}")
        if type(self.tokens) is not int or not 1 <= self.tokens <= MAX_TOKENS:
            raise ValueError(f"speculation proposes 1 to {MAX_TOKENS} tokens, not {self.tokens}")


# ── how often predictions are right ───────────────────────────────────────────────────────────────────

_FIRST_ODDS = (0.3, 0.4, 0.5, 0.7, 0.8, 0.9)
_BOUNDS = (SIZE, 4, 6, 10, 20)


class Odds:
    """The share of right predictions by the length of the match, the last ones counting most."""

    __slots__ = ("_rate", "_shares")

    def __init__(self, shares: Iterable[float] = _FIRST_ODDS, rate: float = 1 / 64) -> None:
        self._shares = list(shares)
        self._rate = rate

    def of(self, matched: int) -> float:
        """The probability that the token after a match of so many tokens is predicted."""
        return self._shares[_kind(matched)]

    def observe(self, matched: int, right: bool) -> None:
        kind = _kind(matched)
        self._shares[kind] += self._rate * (right - self._shares[kind])

    def branch(self, rate: float = 1 / 8) -> "Odds":
        """Odds of one sequence, which begin as these and change faster."""
        return Odds(self._shares, rate)

    def chances(self, matched: int, count: int) -> list[float]:
        """The probability that all of the first 1, 2, … `count` proposals are accepted."""
        chances, chance = [], 1.0
        for length in range(matched, matched + count):
            chance *= self.of(length)
            chances.append(chance)
        return chances


def _kind(matched: int) -> int:
    return sum([matched >= bound for bound in _BOUNDS])


# ── proposals ─────────────────────────────────────────────────────────────────────────────────────────


class Proposer:
    """What one sequence has for speculation. Its index has the client's prediction between prompt and answer: passages
    of the answer itself go first, then those of the prediction, and those of the prompt last."""

    __slots__ = ("index", "odds", "_shared", "_sequence", "_copied", "_text")

    def __init__(self, sequence: Sequence, shared: Odds) -> None:
        self.odds = shared.branch()
        self._shared = shared
        self._sequence = sequence
        self._copied = begin = sequence.num_prompt_tokens
        self._text: list[int] | None = None
        if sequence.prediction:
            self._text = [*sequence.token_ids[:begin], *sequence.prediction]
            self.index = NgramIndex(self._text, predicted=begin)
        else:
            self.index = NgramIndex(sequence.token_ids)

    def catch_up(self) -> None:
        if self._text is not None:
            self._text += self._sequence.token_ids[self._copied :]
            self._copied = len(self._sequence)
        self.index.catch_up(self._observe)

    def predicted(self, count: int) -> range:
        """The places of the prediction's tokens among the first `count` proposed ones."""
        begin, at = self._sequence.num_prompt_tokens, self.index.at
        return range(max(0, begin - at), min(count, begin + len(self._sequence.prediction) - at))

    def _observe(self, matched: int, right: bool) -> None:
        self.odds.observe(matched, right)
        self._shared.observe(matched, right)


class Speculator:
    """Proposes tokens for the sequences of a step. It has no clock, and belongs to the scheduler."""

    def __init__(self, config: Speculation, max_model_len: int, drafts: DraftPlanner | None = None) -> None:
        self.costs = StepCosts()
        self.drafts = drafts
        """Of a second model, which proposes where the text itself does not."""
        self._config = config
        self._max_model_len = max_model_len
        self._odds = Odds()
        self._proposers: dict[int, Proposer] = {}
        self.num_drafts = 0
        """Chunks with proposals."""
        self.num_proposed = 0
        self.num_accepted = 0

    @property
    def sequence_ids(self) -> Set[int]:
        """The sequences that it holds something for."""
        own = self._proposers.keys()
        return own if self.drafts is None else own | self.drafts.sequence_ids

    def forget(self, sequence: Sequence) -> None:
        """Drop what belongs to a sequence that has ended."""
        self._proposers.pop(sequence.id, None)
        if self.drafts is not None:
            self.drafts.forget(sequence)

    def accepted(self, sequence: Sequence, proposed: int, right: int) -> None:
        """Count a chunk of which `right` of the `proposed` tokens were accepted."""
        self.num_drafts += 1
        self.num_proposed += proposed
        self.num_accepted += right
        if self.drafts is not None:
            self.drafts.accepted(sequence, proposed, right)

    def measured(self, sequences: int, proposed: int, seconds: float) -> None:
        """A step without prompts lasted `seconds`."""
        if self.drafts is None or not self.drafts.measured(sequences, proposed, seconds):
            self.costs.observe(sequences, proposed, seconds)

    def proposals(self, sequences: Items[Sequence], room: int, prompt_token: float = 0.0) -> dict[int, list[int]]:
        """Proposed tokens by sequence id, up to `room` in all; those of sequences without any are absent.

        `prompt_token` is not 0 in a step with prompts: the seconds that a token adds to such a step, which computes
        rather than waits for memory.
        """
        candidates = [
            (sequence, tokens)
            for sequence in sequences
            if sequence.constraint is None
            and (self.drafts is None or sequence.prediction)
            and (tokens := self._proposal(sequence))
        ]
        count = len(sequences)
        room = min(room, MOST_PROPOSED)
        if not candidates or room <= 0 or self.costs.plain_is_due(count) or (plain := self.costs.plain(count)) is None:
            return {}
        if prompt_token:
            each = prompt_token / plain
            return self._chosen(candidates, count, lambda proposed: each * proposed, room)
        return self._chosen(candidates, count, self.costs.added(count), min(room, self.costs.most(count)))

    def _proposal(self, sequence: Sequence) -> list[int]:
        proposer = self._proposers.get(sequence.id)
        if proposer is None:
            proposer = self._proposers[sequence.id] = Proposer(sequence, self._odds)
        proposer.catch_up()
        left = min(sequence.params.max_tokens - sequence.num_generated, self._max_model_len - len(sequence)) - 1
        return proposer.index.proposal(min(self._config.tokens, left)) if left > 0 else []

    def _chosen(
        self, candidates: Items[tuple[Sequence, list[int]]], count: int, added: Callable[[int], float], room: int
    ) -> dict[int, list[int]]:
        """The proposals with the best chances, as many as pay."""
        ranked: list[tuple[float, int]] = []
        for sequence, tokens in candidates:
            proposer = self._proposers[sequence.id]
            chances = proposer.odds.chances(proposer.index.matched, len(tokens))
            ranked += [(chance, sequence.id) for chance in chances]
        # The chances of one sequence fall, so its proposals stay in their order.
        ranked.sort(key=lambda one: one[0], reverse=True)
        del ranked[room:]
        sizes: dict[int, int] = {}
        for _, sequence_id in ranked[: best_count(count, [chance for chance, _ in ranked], added)]:
            sizes[sequence_id] = sizes.get(sequence_id, 0) + 1
        for sequence, _ in candidates:
            if sequence.prediction and sequence.id in sizes:
                sequence.predicted_ahead = self._proposers[sequence.id].predicted(sizes[sequence.id])
        return {sequence.id: tokens[: sizes[sequence.id]] for sequence, tokens in candidates if sequence.id in sizes}
