"""What the guards of one request have found, and what they do about it."""

from collections.abc import Sequence

from adapters.errors import ContentFiltered, InferenceError, Unsupported
from config.schema.guards import NamedGuardConfig, Side
from gateway.telemetry.record import Record
from policies.guards.masking import HeldText, RulesByView, TextTooLong, masked

BLOCKED = "A guard blocked the content."


class SideGuard:
    """The guards of one side of one request: of its prompt, or of its answer."""

    __slots__ = ("_guards", "_record", "_rules", "_side", "acts")

    def __init__(
        self, guards: Sequence[NamedGuardConfig], rules: RulesByView, side: Side, record: Record, *, acts: bool
    ) -> None:
        self._guards = guards
        self._rules = rules
        self._side: Side = side
        self._record = record
        self.acts = acts
        """Whether one of them changes or refuses something."""

    def report(self, index: int) -> None:
        """Note that a guard has found a text. Raises `ContentFiltered` if it blocks."""
        guard = self._guards[index]
        verdicts = self._record.guards
        if verdicts is None:
            verdicts = self._record.guards = {}
        key = (guard.name, guard.action, guard.mode, self._side)
        verdicts[key] = verdicts.get(key, 0) + 1
        if guard.mode == "enforce" and guard.action == "block":
            raise ContentFiltered(BLOCKED)

    def masked(self, text: str) -> str:
        """A whole text with its masks. Raises `ContentFiltered`."""
        return masked(text, self._rules, self.report)

    def held(self) -> HeldText:
        """A text of a stream. Its `feed` raises `ContentFiltered` and `TextTooLong`."""
        return HeldText(self._rules, self.report)

    def unreadable(self, subject: str) -> InferenceError:
        """The error of a text that cannot be examined: nothing passes unread."""
        return Unsupported(f"A guard of this request cannot read {subject}.")

    def too_long(self, _: TextTooLong) -> InferenceError:
        """The error of a text that would be held for too long."""
        return ContentFiltered("A guard cannot examine a part of the text: it is too long.")
