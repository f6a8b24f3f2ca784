"""Finds stop texts in streamed text, for servers that return the stop text or do not support stop texts."""


class StopTexts:
    """Cuts a text at the first stop text, then sets `matched`. Holds back a possible beginning of a stop text."""

    __slots__ = ("_held", "_longest", "_stops", "matched")

    def __init__(self, stops: list[str]) -> None:
        self._stops = stops
        self._longest = max(map(len, stops), default=0)
        self._held = ""
        self.matched = False

    def feed(self, text: str) -> str:
        """Add text. Returns the text that cannot be part of a stop text."""
        if not self._stops:
            return text
        if self.matched:
            return ""
        text = self._held + text
        ends = [at for stop in self._stops if (at := text.find(stop)) >= 0]
        if ends:
            self.matched, self._held = True, ""
            return text[: min(ends)]
        keep = self._begun(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def rest(self) -> str:
        """Return the text that was held back, after the end of the stream."""
        held, self._held = self._held, ""
        return held

    def _begun(self, text: str) -> int:
        """Return the length of the longest end of `text` with which a stop text begins."""
        for size in range(min(self._longest - 1, len(text)), 0, -1):
            end = text[-size:]
            if any(stop.startswith(end) for stop in self._stops):
                return size
        return 0
