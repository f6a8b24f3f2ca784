"""Open sequences: their names, their slots, and the backlog. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import Protocol

from adapters.errors import CallerError, CapacityError
from runtimes.tensor.sequences.sequence import RequestSequence, SequenceId, SequencePlace

MAX_BACKLOG = 1024
"""The number of sequences that may wait for a slot."""


class Slots(Protocol):
    """The slots of one copy."""

    @property
    def room(self) -> tuple[bool, int]:
        """The rank of a copy for another sequence: its readiness, and the number of free slots."""
        ...

    def take(self, sequence: RequestSequence) -> None: ...

    def leave(self, sequence: RequestSequence) -> None: ...


class OpenSequences:
    """The sequences of one model. A sequence waits in the backlog for a slot, and has it until it is closed."""

    def __init__(self, model: str, copies: Sequence[Slots], max_idle: float) -> None:
        self.max_idle = max_idle
        self._model = model
        self._copies = copies
        self._named: dict[SequenceId, RequestSequence] = {}
        self._placed: dict[RequestSequence, Slots] = {}
        self._backlog: dict[RequestSequence, None] = {}

    def __len__(self) -> int:
        return len(self._placed) + len(self._backlog)

    def __iter__(self) -> Iterator[RequestSequence]:
        return iter([*self._placed, *self._backlog])

    def holds(self, name: SequenceId) -> bool:
        sequence = self._named.get(name)
        return sequence is not None and not sequence.ending

    def of(self, place: SequencePlace, now: float) -> RequestSequence:
        """The sequence that a request continues or begins. Raises `CallerError` for neither."""
        sequence = self._named.get(place.id)
        if place.start:
            if sequence is not None and not sequence.ending:
                return sequence  # it starts over in its slot, after the requests that it has
            return self._begin(place, sequence, now)
        if sequence is None or sequence.ending:
            raise CallerError(
                f"inference request for sequence {place.id} to model '{self._model}' must specify the START flag on the"
                " first request of the sequence. It was not begun, has ended, was idle for more than"
                f" {self.max_idle:g} s or was lost with its copy of the model.",
                code="sequence_not_open",
                param="sequence_start",
            )
        return sequence

    def _begin(self, place: SequencePlace, after: RequestSequence | None, now: float) -> RequestSequence:
        if len(self._backlog) >= MAX_BACKLOG:
            raise CapacityError(
                f"All places for sequences are taken, and {len(self._backlog)} sequences wait for one; try later.",
                code="backlog_full",
                retry_after=self.max_idle,
            )
        sequence = self._named[place.id] = RequestSequence(place.id, after, now)
        self._backlog[sequence] = None
        return sequence

    def place(self) -> None:
        """Assign free slots to the sequences that have waited longest."""
        if not self._backlog or not any(copy.room[1] for copy in self._copies):
            return
        for sequence in [s for s in self._backlog if s.predecessor() is None]:
            copy = max(self._copies, key=_room)
            if not copy.room[1]:
                return
            del self._backlog[sequence]
            self._placed[sequence] = copy
            copy.take(sequence)

    def close(self, sequence: RequestSequence) -> None:
        """Remove a sequence that has ended. Its slot is free for another."""
        sequence.closed = sequence.ending = True
        if self._named.get(sequence.id) is sequence:
            before = sequence.predecessor()
            if before is None:
                del self._named[sequence.id]
            else:  # the start of the next sequence waits for that
                self._named[sequence.id] = before
        self._backlog.pop(sequence, None)
        copy = self._placed.pop(sequence, None)
        if copy is not None:
            copy.leave(sequence)

    def idle(self, now: float) -> tuple[list[RequestSequence], float]:
        """Sequences whose idle time has passed, and the time of the next check."""
        over, next_ = [], inf
        for sequence in self._placed:
            if not sequence.turns and not sequence.running:
                until = sequence.quiet_since + self.max_idle
                if until <= now:
                    over.append(sequence)
                else:
                    next_ = min(next_, until)
        return over, next_


def _room(copy: Slots) -> tuple[bool, int]:
    # One that is not ready has room too, which is taken only when no other has any.
    ready, free = copy.room
    return ready and free > 0, free
