"""Speculation with a second, smaller model of the same vocabulary: which sequences it drafts for, and how many tokens.

The draft's keys and values are in a cache with the same pages as the large model's, so that a block table is both
models' and every sequence that begins, ends or is preempted takes its draft along. Its pages are filled only for
sequences that it drafts for, beginning with what it has not read of them yet. A page that it has read whole is marked
with the digest of its tokens: a later sequence with the same beginning finds it.

All sequences of a step draft to one depth, because a round of the draft costs about the same for any number of them.
The depth is that of the most expected tokens a second (Leviathan et al. 2023, section 3.5), 0 where none pay: a
proposal is right with the probability `Acceptance`, and the cost of a depth is measured.

Two credits bound what is lost where this expects too much. Both count every second that a step with a draft lasts
longer than its tokens take without. One is of all that the draft does: without it, nothing more is read. The other
is of proposals alone: without it the draft rests. A text that was read at a loss may so still be proposed for.
"""

from collections.abc import Sequence as Items
from collections.abc import Set
from dataclasses import dataclass, field

from runtimes.llm.engine.block_manager import BlockManager
from runtimes.llm.engine.step_costs import FIRST_CREDIT, MOST_PROPOSED, DraftCredit, StepCosts, best_count
from runtimes.llm.sequence import Chunk, Sequence

PROBE_EVERY = 32
"""Steps after which one sequence drafts one token although none pays: texts change."""
LEAST_CHANCE = 0.1
"""The least chance of a proposal that is worth the logits of its place."""
READ_FOR = 16
"""Tokens that the draft reads for each one that the answer may still have: reading a long prompt for a short answer
costs more than it gains."""
READ_SHARE = 4
"""In one step the draft reads one part in so many of `max_num_batched_tokens`, so that other sequences do not wait."""
_FEW = 4
"""Tokens that a step may read beside drafting and still be measured: those of steps without a draft."""
_FIRST_CHANCE = 0.7
_PROPOSING_CREDIT = 4 * FIRST_CREDIT
_READING_CREDIT = 32 * FIRST_CREDIT
"""Enough for the prompts of many answers that begin together."""
_MOST_LOST = 2 * FIRST_CREDIT
"""Steps that one step of proposals counts as lost at most: one that another program delayed must not end drafting."""


class Acceptance:
    """The share of right proposals, the last ones counting most."""

    __slots__ = ("_rate", "share")

    def __init__(self, share: float = _FIRST_CHANCE, rate: float = 1 / 64) -> None:
        self.share = share
        self._rate = rate

    def observe(self, right: bool) -> None:
        self.share += self._rate * (right - self.share)

    def branch(self, rate: float = 1 / 16) -> "Acceptance":
        """That of one sequence, which begins as this one and changes faster."""
        return Acceptance(self.share, rate)


@dataclass(eq=False, slots=True)
class DraftState:
    """What the draft has of one sequence: the keys and values of the first `computed` tokens, in the pages `table`."""

    acceptance: Acceptance
    table: Items[int] = ()
    computed: int = 0
    marked: int = 0
    """Pages that are marked as read."""
    drafting: bool = False
    """Whether the step that runs has its proposals."""
    reading: bool = False
    """Whether a part of the text was read, so that the rest is needed for any gain."""


@dataclass(frozen=True, slots=True)
class PlannedDraft:
    """Work of the draft before a step: it reads the tokens from `start` up to `end`, and proposes `count` behind them.

    `newest` is the sequence's chunk of its newest token, at position `end` - 1 if there is anything to propose.
    """

    sequence: Sequence
    newest: Chunk
    state: DraftState = field(repr=False)
    start: int
    end: int
    count: int


class DraftPlanner:
    """Belongs to the scheduler. It has no clock and no model."""

    def __init__(self, tokens: int, *, max_model_len: int, max_num_batched_tokens: int, num_blocks: int) -> None:
        """Up to `tokens` for a sequence. `max_model_len` is the shorter one of the two models."""
        self.costs = StepCosts()
        """By the depth of the drafts, not by the proposals of all sequences together."""
        self._tokens = tokens
        self._max_model_len = max_model_len
        self._most_read = max(1, max_num_batched_tokens // READ_SHARE)
        self._marks: list[bytes | None] = [None] * num_blocks
        """The digests of pages whose tokens the draft has read."""
        self._acceptance = Acceptance()
        self._states: dict[int, DraftState] = {}
        self._planned: list[PlannedDraft] = []
        self._depth = self._read = self._idle = self._right = 0
        self._probes = False
        """Whether only one of several sequences drafts: that costs less than the drafts of all."""
        self._begun = False
        """Whether the draft has run: its first run may last long, because the device gets ready in it."""
        self._proposing, self._everything = DraftCredit(_PROPOSING_CREDIT), DraftCredit(_READING_CREDIT)

    @property
    def sequence_ids(self) -> Set[int]:
        return self._states.keys()

    def forget(self, sequence: Sequence) -> None:
        """Drop what belongs to a sequence that has ended."""
        self._states.pop(sequence.id, None)

    def take(self) -> list[PlannedDraft]:
        """The work before the step that was scheduled last."""
        planned, self._planned = self._planned, []
        return planned

    def accepted(self, sequence: Sequence, proposed: int, right: int) -> None:
        """The step accepted `right` of the `proposed` tokens of a sequence."""
        self._right += right
        state = self._states.get(sequence.id)
        if state is None or not state.drafting:
            return
        for place in range(min(right + 1, proposed)):
            state.acceptance.observe(place < right)
            self._acceptance.observe(place < right)

    def measured(self, sequences: int, proposed: int, seconds: float) -> bool:
        """A step without prompts lasted `seconds`, with the draft's time. Returns whether the draft ran before it."""
        depth, read, right = self._depth, self._read, self._right
        self._depth = self._read = self._right = 0
        few = read <= _FEW * sequences
        if not depth and not read:
            self._proposing.book(1, 1)
            self._everything.book(1, 1)
            if not proposed:
                self.costs.observe(sequences, 0, seconds)
            return False
        if self._begun and (plain := self.costs.plain(sequences)):
            worth, lasted = 1 + right / sequences, seconds / plain
            if few:
                lasted = min(lasted, worth + _MOST_LOST)
                self._proposing.book(worth, lasted)
            self._everything.book(worth, lasted)
        self._begun = True
        if proposed and depth and few and not self._probes:
            self.costs.observe(sequences, depth, seconds)
        return True

    def plan(self, sequences: Items[Sequence], chunks: Items[Chunk], blocks: BlockManager, room: int) -> None:
        """Plan the drafts of a step of these sequences, whose `chunks` may have other proposals already; up to `room`
        tokens in all."""
        self._planned, self._depth, self._read, self._right = [], 0, 0, 0
        for state in self._states.values():
            state.drafting = False
        able = [
            (sequence, chunk, self._state(sequence, blocks.block_size))
            for sequence, chunk in zip(sequences, chunks, strict=True)
            if not chunk.steps and sequence.constraint is None and self._worth_reading(sequence)
        ]
        if not self._everything.good:
            able = [one for one in able if one[2].reading or one[1].start - one[2].computed <= _FEW]
        room = min(room, MOST_PROPOSED)
        if not able or room <= 0 or not self._proposing.good or self.costs.plain_is_due(len(sequences)):
            return
        depth = self._best_depth(len(sequences), [state.acceptance.share for _, _, state in able])
        self._probes = not depth and len(sequences) > 1
        if not depth:
            self._idle += 1
            if self._idle < PROBE_EVERY:
                return
            depth, able = 1, [min(able, key=lambda one: one[1].start - one[2].computed)]
        self._idle = 0
        for sequence, newest, state in able:
            count = min(depth, self._left(sequence), room, _count(state.acceptance.share, depth) or 1)
            room -= self._draft(sequence, newest, state, blocks, count)

    def _draft(self, sequence: Sequence, newest: Chunk, state: DraftState, blocks: BlockManager, count: int) -> int:
        """Plan one sequence's draft; returns the number of tokens that it proposes."""
        size, start, readable = blocks.block_size, state.computed, self._most_read - self._read
        unread = newest.start - start
        if count <= 0 or (unread and not readable):
            return 0
        if unread > readable:
            end, count = start + readable, 0
        elif not blocks.allocate(sequence, newest.end + count):
            end, count = newest.end, min(count, len(sequence.block_table) * size - newest.end)
        else:
            end = newest.end
        self._read += min(unread, readable)
        state.reading = unread > readable
        self._depth = max(self._depth, count)
        for page in range(start // size, -(-max(end, newest.start + count) // size)):
            self._marks[sequence.block_table[page]] = None
        state.marked = min(state.marked, start // size)
        state.drafting = count > 0
        self._planned.append(PlannedDraft(sequence, newest, state, start, end, count))
        return count

    def _best_depth(self, sequences: int, shares: list[float]) -> int:
        most = min(self._tokens, self.costs.most(sequences))
        gains = [
            sum([share**place for share in shares if share**place >= LEAST_CHANCE]) for place in range(1, most + 1)
        ]
        return best_count(sequences, gains, self.costs.added(sequences))

    def _worth_reading(self, sequence: Sequence) -> bool:
        left = self._left(sequence)
        if left <= 0:
            return False
        state = self._states.get(sequence.id)
        unread = len(sequence) - (0 if state is None or state.table is not sequence.block_table else state.computed)
        return unread <= READ_FOR * left or unread <= self._most_read

    def _left(self, sequence: Sequence) -> int:
        """Tokens that may be proposed: the last one of an answer is none."""
        answer = sequence.params.max_tokens - sequence.num_generated
        return min(answer, self._max_model_len - len(sequence)) - 1

    def _state(self, sequence: Sequence, size: int) -> DraftState:
        """The state, in which refused proposals are forgotten."""
        state = self._states.get(sequence.id)
        if state is None:
            state = self._states[sequence.id] = DraftState(self._acceptance.branch())
        table = sequence.block_table
        if state.table is not table:  # it has begun, or begins again after a preemption
            state.table, state.reading = table, False
            pages = zip(table, sequence.digests, strict=False)
            unread = (place for place, (page, digest) in enumerate(pages) if self._marks[page] != digest)
            state.marked = next(unread, min(len(table), len(sequence.digests)))
            state.computed = min(state.marked * size, sequence.num_computed)
            return state
        state.computed = min(state.computed, sequence.num_computed)
        whole = min(state.computed // size, len(sequence.digests))
        for place in range(state.marked, whole):
            self._marks[table[place]] = sequence.digests[place]
        state.marked = max(state.marked, whole)
        return state


def _count(share: float, depth: int) -> int:
    """The proposals, up to `depth`, of a sufficient chance."""
    return sum([share**place >= LEAST_CHANCE for place in range(1, depth + 1)])
