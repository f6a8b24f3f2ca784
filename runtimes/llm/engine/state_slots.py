"""Slots of recurrent states: whose each is, and the copies that let prompts begin within others.

A cached beginning of keys and values is of use to a recurrent model only where a copy of the state was made. Copies are
made where later prompts are likely to part from a prompt: at its last full page, which holds for the next turn of a
chat, and where it parts from the pages that are cached, which holds for a beginning that several prompts share (as in
Pan et al. 2024, "Marconi: Prefix Caching for the Era of Hybrid LLMs", https://arxiv.org/abs/2411.19379). Copies take
only slots that no sequence needs. The least recently used copy is given up first.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from itertools import chain

from runtimes.llm.sequence import Sequence as TokenSequence
from runtimes.llm.states import HeldSlots


class StateSlots:
    """Owns `num_slots` slots. Every slot is free, a sequence's own, a copy, or one that a copy is due in."""

    def __init__(self, num_slots: int) -> None:
        if num_slots < 1:
            raise ValueError(f"need at least one slot for a state, not {num_slots}")
        self.num_slots = num_slots
        self._free = list(range(num_slots - 1, -1, -1))
        self._copies: OrderedDict[bytes, int] = OrderedDict()  # by the digest of the last page; the oldest in front
        self._readers: Counter[int] = Counter()  # of copies that sequences are about to begin with
        self._coming: dict[bytes, int] = {}  # copies that are due, and in which sequence

    def computed_by(self, digests: Sequence[bytes]) -> int | None:
        """The sequence that is about to make the copy at the end of the pages `digests`, if there is one."""
        return self._coming.get(digests[-1]) if digests else None

    def take(self, sequence: TokenSequence, digests: Sequence[bytes], page: int) -> int:
        """Begin the sequence with the last copy within the pages `digests`, of `page` tokens each. Returns how many of
        the pages come before it."""
        sequence.state = state = HeldSlots()
        for count in range(len(digests), 0, -1):
            slot = self._copies.get(digests[count - 1])
            if slot is not None:
                self._copies.move_to_end(digests[count - 1])
                self._readers[slot] += 1
                state.taken, state.begins = slot, count * page
                return count
        return 0

    def allocate(self, sequence: TokenSequence) -> bool:
        """Give the sequence a slot of its own if it has none. False, without a change, if slots run out."""
        if sequence.state is None:
            sequence.state = HeldSlots()
        state = sequence.state
        if state.slot is None:
            state.slot = self._claim()
        if state.slot is None and state.taken is not None and self._readers[state.taken] == 1:
            # The copy is the last slot that could be had: it becomes the sequence's own.
            del self._copies[next(digest for digest, slot in self._copies.items() if slot == state.taken)]
            state.slot = state.taken
        return state.slot is not None

    def plan(self, sequence: TokenSequence, digests: Sequence[bytes], cached: int, page: int) -> None:
        """Plan the copies of a sequence of which the pages `digests` are full, and the first `cached` are cached."""
        state = sequence.state
        assert state is not None
        last = (len(sequence) - 1) // page
        for count in sorted({min(cached, last), last}):
            if count * page <= sequence.num_computed or digests[count - 1] in self._copies:
                continue
            if digests[count - 1] not in self._coming and (slot := self._claim()) is not None:
                state.due.append((count * page, slot))
                self._coming[digests[count - 1]] = sequence.id

    def reached(self, sequence: TokenSequence, digests: Sequence[bytes], page: int) -> None:
        """Make the copies known that are computed by now."""
        state = sequence.state
        assert state is not None
        if sequence.num_computed > state.begins:
            self._read(state)
        while state.due and state.due[0][0] <= sequence.num_computed:
            position, slot = state.due.pop(0)
            digest = digests[position // page - 1]
            self._coming.pop(digest, None)
            self._copies[digest] = slot

    def release(self, sequence: TokenSequence) -> None:
        """Release what a sequence holds; its state must be computed again."""
        if (state := sequence.state) is None:
            return
        self._read(state)
        self._free += [slot for _, slot in state.due]
        if state.slot is not None:
            self._free.append(state.slot)
        self._coming = {digest: owner for digest, owner in self._coming.items() if owner != sequence.id}
        sequence.state = None

    def check_integrity(self, sequences: Iterable[TokenSequence]) -> None:
        """Raise AssertionError unless each slot is in one place, and each copy that is being read is there."""
        states = [sequence.state for sequence in sequences if sequence.state is not None]
        held = [state.slot for state in states if state.slot is not None]
        due = [slot for state in states for _, slot in state.due]
        places = sorted(chain(self._free, self._copies.values(), held, due))
        if places != list(range(self.num_slots)):
            raise AssertionError(f"slots of states are not each in one place: {places}")
        readers = Counter(state.taken for state in states if state.taken is not None)
        if readers != self._readers or len(self._coming) != len(due):
            raise AssertionError(f"copies of states have {self._readers} readers, not {readers}, or are not due")

    def _read(self, state: HeldSlots) -> None:
        if state.taken is not None:
            self._readers -= Counter([state.taken])
            state.taken = None

    def _claim(self) -> int | None:
        if self._free:
            return self._free.pop()
        for digest, slot in self._copies.items():
            if not self._readers[slot]:
                return self._copies.pop(digest)
        return None
