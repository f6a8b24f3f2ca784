"""Copies whose `execute` waits for a response of another model, so that a circle of them is detected at once.

A copy is stuck if every copy of the model that it waits for is stuck too: none of them can take its request.
"""

from __future__ import annotations


class BlockedCopies:
    """Waits of copies, for all models that receive requests whole. A copy is any object."""

    def __init__(self) -> None:
        self._copies: dict[str, set[object]] = {}
        self._waits_for: dict[object, str] = {}
        """The model that each copy waits for."""

    def add(self, model: str, copy: object) -> None:
        self._copies.setdefault(model, set()).add(copy)

    def remove(self, model: str, copy: object) -> None:
        self.release(copy)
        copies = self._copies.get(model, set())
        copies.discard(copy)
        if not copies:
            self._copies.pop(model, None)

    def block(self, copy: object, model: str) -> bool:
        """Record that a copy waits for a model. False, and nothing is recorded, if it would wait forever."""
        self._waits_for[copy] = model
        if copy in self._stuck():
            del self._waits_for[copy]
            return False
        return True

    def release(self, copy: object) -> None:
        """Record that a copy has its response."""
        self._waits_for.pop(copy, None)

    def _stuck(self) -> set[object]:
        stuck = set(self._waits_for)
        while free := {copy for copy in stuck if not self._is_stuck(self._waits_for[copy], stuck)}:
            stuck -= free
        return stuck

    def _is_stuck(self, model: str, stuck: set[object]) -> bool:
        """Whether no copy of a model can take a request. A model without copies here is another kind, and can."""
        copies = self._copies.get(model, set())
        return bool(copies) and copies <= stuck
