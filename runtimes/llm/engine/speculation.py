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
StepCosts    how much longer a step lasts for each proposed token, by the number of sequences
"""

from collections import deque
from collections.abc import Callable, Iterable, Set
from collections.abc import Sequence as Items
from dataclasses import dataclass
from statistics import median
from typing import Literal

from runtimes.llm.engine.ngram_index import SIZE, NgramIndex
from runtimes.llm.sequence import Sequence

MAX_TOKENS = 32
MOST_PROPOSED = 128
"""Proposals of a step: each needs the logits of the whole vocabulary."""


@dataclass(frozen=True, slots=True)
class Speculation:
    """`tokens` is the greatest number of tokens that are proposed for a sequence in one step. Raises ValueError if it
    is out of range."""

    kind: Literal["ngram"]
    tokens: int = 8

    def __post_init__(self) -> None:
        if self.kind != "ngram":
            raise ValueError(f"speculation is of kind ngram, not {self.kind}")
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


# ── how much proposals cost ───────────────────────────────────────────────────────────────────────────

_SAMPLES = 9
"""Measurements of which the median counts: a step that another program delayed does not."""
_PLAIN_EVERY = 64
"""Steps after which one without proposals is measured again: contexts grow."""
_FORGET_EVERY = 512
"""Steps after which the oldest measurement of each kind goes, so that what was measured in bad company is tried again.
"""
FIRST_SHARE = 4
"""The first proposals are one for so many sequences, at least two in all. They count as free. Later ones are at most
twice as many as were measured: a trial costs little, however expensive proposals are."""


class StepCosts:
    """The durations of steps, without a clock. `sequences` take their next token in a step, and `proposed` is the
    number of proposals in it, of all sequences together."""

    def __init__(self) -> None:
        self._plain: dict[int, deque[float]] = {}
        self._each: dict[int, dict[int, deque[float]]] = {}
        """By sequences and proposals: the part of a plain step that a proposal adds."""
        self._since: dict[int, int] = {}
        self._steps = 0

    def observe(self, sequences: int, proposed: int, seconds: float) -> None:
        """A step without prompts lasted `seconds`."""
        if seconds <= 0:
            return
        size = bucket(sequences)
        if not proposed:
            self._plain.setdefault(size, deque(maxlen=_SAMPLES)).append(seconds / sequences)
            self._since[size] = 0
        elif (plain := self.plain(sequences)) is not None:
            added = max(0.0, seconds / plain - 1) / proposed
            costs = self._each.setdefault(size, {})
            costs.setdefault(bucket(proposed), deque(maxlen=_SAMPLES)).append(added)
            self._since[size] += 1
        self._steps += 1
        if self._steps % _FORGET_EVERY == 0:
            self._forget()

    def plain(self, sequences: int) -> float | None:
        """Seconds of a step without proposals; None if none was measured."""
        measured = self._plain.get(bucket(sequences))
        return median(measured) * sequences if measured else None

    def plain_is_due(self, sequences: int) -> bool:
        """Whether the next step should have no proposals, so that it measures `plain`."""
        return self._since.get(bucket(sequences), _PLAIN_EVERY) >= _PLAIN_EVERY

    def most(self, sequences: int) -> int:
        """The greatest number of proposals that may be tried."""
        measured = [size for size, costs in self._each.get(bucket(sequences), {}).items() if costs]
        return 2 * max(measured, default=max(1, sequences // (2 * FIRST_SHARE)))

    def added(self, sequences: int) -> Callable[[int], float]:
        """The function from the number of proposals to the part of a plain step that they add. The cost of a number
        that was not measured is that of the next lower one, or else of the next higher one."""
        costs = self._each.get(bucket(sequences), {})
        each = {size: median(measured) for size, measured in costs.items() if measured}
        sizes = sorted(each)

        def cost(proposed: int) -> float:
            if not sizes:
                return 0.0
            own = bucket(proposed)
            return each[max((size for size in sizes if size <= own), default=sizes[0])] * proposed

        return cost

    def _forget(self) -> None:
        for costs in self._each.values():
            for measured in costs.values():
                if measured:
                    measured.popleft()


def bucket(count: int) -> int:
    """Counts that are measured together: each up to 8, above that four for each power of two."""
    if count <= 8:
        return count
    shift = count.bit_length() - 3
    return (count - 1 >> shift) + 1 << shift


MARGIN = 1.05
"""The expected gain from which tokens are proposed."""


def best_count(sequences: int, chances: Items[float], added: Callable[[int], float]) -> int:
    """The number of proposals with the most expected tokens a second; 0 if that gains less than MARGIN.

    `chances` are those of all sequences' proposals to be accepted, the highest first.
    """
    best, count, expected = float(sequences) * MARGIN, 0, float(sequences)
    for number, chance in enumerate(chances, start=1):
        expected += chance
        if (rate := expected / (1 + added(number))) > best:
            best, count = rate, number
    return count


# ── proposals ─────────────────────────────────────────────────────────────────────────────────────────


class Proposer:
    """What one sequence has for speculation."""

    __slots__ = ("index", "odds", "_shared")

    def __init__(self, sequence: Sequence, shared: Odds) -> None:
        self.index = NgramIndex(sequence.token_ids)
        self.odds = shared.branch()
        self._shared = shared

    def catch_up(self) -> None:
        self.index.catch_up(self._observe)

    def _observe(self, matched: int, right: bool) -> None:
        self.odds.observe(matched, right)
        self._shared.observe(matched, right)


class Speculator:
    """Proposes tokens for the sequences of a step. It has no clock, and belongs to the scheduler."""

    def __init__(self, config: Speculation, max_model_len: int) -> None:
        self.costs = StepCosts()
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
        return self._proposers.keys()

    def forget(self, sequence: Sequence) -> None:
        """Drop what belongs to a sequence that has ended."""
        self._proposers.pop(sequence.id, None)

    def accepted(self, proposed: int, right: int) -> None:
        """Count a chunk of which `right` of the `proposed` tokens were accepted."""
        self.num_drafts += 1
        self.num_proposed += proposed
        self.num_accepted += right

    def proposals(self, sequences: Items[Sequence], room: int, prompt_token: float = 0.0) -> dict[int, list[int]]:
        """Proposed tokens by sequence id, up to `room` in all; those of sequences without any are absent.

        `prompt_token` is not 0 in a step with prompts: the seconds that a token adds to such a step, which computes
        rather than waits for memory.
        """
        candidates = [
            (sequence, tokens)
            for sequence in sequences
            if sequence.constraint is None and (tokens := self._proposal(sequence))
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
        return {sequence.id: tokens[: sizes[sequence.id]] for sequence, tokens in candidates if sequence.id in sizes}
