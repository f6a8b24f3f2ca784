"""The text of a stream behind guards that judge: it leaves in windows that they have judged."""

from adapters.errors import ContentFiltered
from gateway.features.guards.judges.base import MOST_WHOLE
from gateway.features.guards.judges.panel import Panel
from gateway.traffic.guarded.guard import GuardedText
from policies.pipelines.window import GuardWindow


class JudgedText:
    """What the other guards release is judged window by window, so that nothing leaves before its window is judged.

    The content of a choice is also judged as a whole if a guard does so: then all of it is held until the end. Guards
    that change nothing hold nothing: they judge at the end.
    """

    def __init__(self, inner: GuardedText, panel: Panel, *, is_whole: bool) -> None:
        self._inner = inner
        self._panel = panel
        self._window = GuardWindow(panel.window, panel.overlap) if panel.acts else None
        self._seen: list[str] | None = None if panel.acts else []
        self._collected: list[str] | None = [] if is_whole and panel.of_wholes else None
        self._size = 0

    async def feed(self, text: str) -> str:
        return await self._passed(await self._inner.feed(text), ended=False)

    async def end(self) -> str:
        return await self._passed(await self._inner.end(), ended=True)

    async def _passed(self, text: str, *, ended: bool) -> str:
        self._size += len(text)
        if self._seen is not None and self._size <= MOST_WHOLE:
            self._seen.append(text)
            if ended:
                await self._panel.examine(["".join(self._seen)])
        if self._window is not None:
            text = await self._judged(self._window, text, ended=ended)
        if self._collected is None:
            return text
        if self._size > MOST_WHOLE:
            return self._too_long(text)
        self._collected.append(text)
        if not ended:
            return "" if self._panel.holds else text
        whole = "".join(self._collected)
        if whole:
            await self._panel.examine([whole], whole=True)
        return whole if self._panel.holds else text

    def _too_long(self, text: str) -> str:
        """A text that is too long to be held does not leave; one that nothing holds is not judged."""
        if self._panel.holds:
            raise ContentFiltered("A guard cannot examine a part of the text: it is too long.")
        self._collected = None
        return text

    async def _judged(self, window: GuardWindow, text: str, *, ended: bool) -> str:
        window.feed(text)
        if ended:
            window.end()
        released = ""
        while (due := window.due()) is not None:
            await self._panel.examine([due])
            released += window.passed()
        return released + (window.rest() if ended else "")
