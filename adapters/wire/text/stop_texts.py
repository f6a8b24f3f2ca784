"""Stop strings in streamed text, for servers that return the stop string or do not support any."""


class StopTexts:
    """Holds back what may be the beginning of one until it is clear whether it is. `matched` at the first."""

    __slots__ = ("_held", "_longest", "_stops", "matched")

    def __init__(self, stops: list[str]) -> None:
        self._stops = stops
        self._longest = max(map(len, stops), default=0)
        self._held = ""
        self.matched = False

    def feed(self, text: str) -> str:
        """Add text. Returns the text that cannot be part of a stop string."""
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
        """The text that was held back, after the end."""
        held, self._held = self._held, ""
        return held

    def _begun(self, text: str) -> int:
        """The length of the longest end of `text` that one of them begins with."""
        for size in range(min(self._longest - 1, len(text)), 0, -1):
            end = text[-size:]
            if any(stop.startswith(end) for stop in self._stops):
                return size
        return 0
