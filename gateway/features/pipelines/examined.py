"""The texts of a stream in the windows of an examiner."""

from adapters.errors import InferenceError, StepFailed
from gateway.features.pipelines.examiner import Examiner
from gateway.features.pipelines.scope import StepScope
from gateway.traffic.guarded.guard import GuardedText
from policies.pipelines.window import GuardWindow, HeldToolCall


class Examined:
    """Examines the texts of a stream for the step of a guard. A `tolerant` one lets them pass while its model fails."""

    def __init__(self, examiner: Examiner, scope: StepScope, *, tolerant: bool) -> None:
        self.examiner = examiner
        self._scope = scope
        self._tolerant = tolerant

    def text(self, name: str = "") -> GuardedText:
        return _ExaminedText(self)

    def arguments(self) -> None:
        """Arguments are examined as a whole."""

    async def call(self, call: HeldToolCall) -> None:
        await self.examine(call.text)

    async def examine(self, text: str) -> None:
        """Examine a text before its release. Raises `ContentFiltered`, and failures of the model."""
        await self.examiner.examine_released(text, self._scope, tolerant=self._tolerant)

    def unreadable(self, message: str) -> InferenceError:
        return StepFailed(message, step=self._scope.path)


class _ExaminedText:
    def __init__(self, guard: Examined) -> None:
        self._guard = guard
        self._window = GuardWindow(guard.examiner.window, guard.examiner.overlap)

    async def feed(self, text: str) -> str:
        self._window.feed(text)
        return await self._passed()

    async def end(self) -> str:
        self._window.end()
        return await self._passed() + self._window.rest()

    async def _passed(self) -> str:
        released = ""
        while (due := self._window.due()) is not None:
            await self._guard.examine(due)
            released += self._window.passed()
        return released
