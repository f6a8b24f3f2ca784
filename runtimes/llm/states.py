"""The recurrent state of a sequence, beside the pages of its keys and values: in which slot it is.

A state is all that a recurrent layer remembers of the tokens before. It has the same size at every position, and the
next token changes it in place. So a sequence has one slot, and a copy from another position must be made in time.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class StateUse:
    """The slots of a chunk: its state begins as `source` has it, with zeros if None. `ends` are (position, slot) in
    ascending order: the state after that many tokens of the sequence goes to the slot."""

    source: int | None
    ends: tuple[tuple[int, int], ...]


@dataclass(slots=True)
class HeldSlots:
    """The slots that a sequence holds. It begins with the copy `taken` at position `begins`, or with zeros at 0."""

    slot: int | None = None
    taken: int | None = None
    begins: int = 0
    due: list[tuple[int, int]] = field(default_factory=list)
    """Copies to make: (position, slot), in ascending order."""

    def use(self, start: int, end: int) -> StateUse:
        """The slots of a chunk of the tokens `start` … `end` - 1."""
        assert self.slot is not None  # it is allocated before the first chunk
        due = [(position, slot) for position, slot in self.due if start < position <= end]
        return StateUse(self.slot if start > self.begins else self.taken, (*due, (end, self.slot)))
