"""Ends a text at the first of its stop strings, in one pass for any number of them (Aho & Corasick 1975, "Efficient
string matching: an aid to bibliographic search").
"""

from collections.abc import Sequence

_WIDTH = 0x110000
"""More than the number of any character."""


class StopTable:
    """The stop strings of a request, none of them empty. All of its answers share it."""

    def __init__(self, stops: Sequence[str]) -> None:
        self.size = sum(map(len, stops))
        self._next: dict[int, int] = {}
        """The trie, by state × _WIDTH + character. State 0 is the empty text."""
        self._fallback = [0]
        """By state: the state of its longest proper end that begins a stop string."""
        self._depth = [0]
        """The length of a state's text."""
        self._matched = [0]
        """The length of the longest stop string that a state's text ends with; 0 for none."""
        edges: list[tuple[int, int, int]] = []
        for stop in stops:
            self._insert(stop, edges)
        self._link(sorted(edges))

    def step(self, state: int, character: str) -> int:
        """The state after one more character."""
        code, table = ord(character), self._next
        while (following := table.get(state * _WIDTH + code)) is None:
            if not state:
                return 0
            state = self._fallback[state]
        return following

    def matched(self, state: int) -> int:
        """The length of the longest stop string that has just ended; 0 for none."""
        return self._matched[state]

    def begun(self, state: int) -> int:
        """The number of last characters that may begin a stop string."""
        return self._depth[state]

    def _insert(self, stop: str, edges: list[tuple[int, int, int]]) -> None:
        state = 0
        for depth, character in enumerate(stop, 1):
            key = state * _WIDTH + ord(character)
            if (following := self._next.get(key)) is None:
                following = self._next[key] = len(self._depth)
                self._depth.append(depth)
                self._fallback.append(0)
                self._matched.append(0)
                edges.append((depth, key, following))
            state = following
        self._matched[state] = len(stop)

    def _link(self, edges: Sequence[tuple[int, int, int]]) -> None:
        """Set the fallbacks, of the shorter texts first."""
        for depth, key, state in edges:
            if depth > 1:
                parent, code = divmod(key, _WIDTH)
                fallback = self._fallback[state] = self.step(self._fallback[parent], chr(code))
                self._matched[state] = self._matched[state] or self._matched[fallback]


class StopStrings:
    """Cuts a text at the first complete stop string, and holds back text that may begin one.

    The string that ends first wins; of those that end together, the longest. `matched` is the matched string; it stays
    in the text if requested. The result does not depend on how the text was cut into pushes.
    """

    def __init__(self, table: StopTable, *, included: bool = False) -> None:
        self._table = table
        self._included = included
        self._state = 0
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str) -> str:
        """The part of the text so far that cannot belong to a stop string. Nothing may follow a match."""
        table, state = self._table, self._state
        if not table.size:
            return text
        checked = len(self._held)
        text = self._held + text
        for at in range(checked, len(text)):
            state = table.step(state, text[at])
            if length := table.matched(state):
                return self._cut(text, at + 1, length)
        self._state = state
        sure = len(text) - table.begun(state)
        self._held = text[sure:]
        return text[:sure]

    def flush(self) -> str:
        """The buffered text: the answer has ended before any stop string was complete."""
        held, self._held = self._held, ""
        return held

    def _cut(self, text: str, end: int, length: int) -> str:
        self.matched = text[end - length : end]
        self._held = ""
        return text[: end if self._included else end - length]
