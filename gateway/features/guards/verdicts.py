"""What the guards of one request have found, and what they do about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from adapters.errors import ContentFiltered, InferenceError, TooLarge, Unsupported
from config.schema.guards import NamedGuardConfig, Side
from gateway.telemetry.record import Record
from gateway.traffic.guarded.guard import ContentReplaced, HeldPart
from policies.guards.masking import HeldText, RulesByView, TextTooLong, masked, masked_by_key
from policies.guards.unread import is_clear

if TYPE_CHECKING:
    from gateway.features.guards.judges.panel import Panel  # only for guards that judge

BLOCKED = "A guard blocked the content."


class PersonalPrompt(Protocol):
    """Masks personal data, which the answer receives again."""

    def masked(self, text: str, key: str = "") -> str:
        """A text of the prompt with placeholders, whose key in an object may say what it is."""
        ...


class SideGuard:
    """The guards of one side of one request: of its prompt, or of its answer."""

    __slots__ = ("_guards", "_record", "_routed", "_rules", "_side", "acts", "panel", "personal")

    def __init__(
        self, guards: Sequence[NamedGuardConfig], rules: RulesByView, side: Side, record: Record, *, acts: bool
    ) -> None:
        self._guards = guards
        self._rules = rules
        self._side: Side = side
        self._record = record
        self.acts = acts
        """Whether one of them changes or refuses something."""
        self.panel: Panel | None = None
        """Those that judge whole texts; None without one."""
        self.personal: PersonalPrompt | None = None
        """What gives personal data of the prompt back; None for guards that mask for ever."""
        self._routed: int | None = None

    @property
    def to(self) -> str | None:
        """The model to which the first of the guards in the file sends the request; None to leave it."""
        return None if self._routed is None else self._guards[self._routed].to

    def report(self, index: int) -> None:
        """Note that a guard has found a text. Raises `ContentFiltered` if it blocks, and
        `ContentReplaced` if it replaces the answer."""
        guard = self._guards[index]
        self._count(guard, guard.action)
        if guard.mode != "enforce":
            return
        if guard.action == "block":
            raise ContentFiltered(BLOCKED)
        if guard.action == "replace":
            raise ContentReplaced(BLOCKED, guard.text or "")
        if guard.action == "route" and (self._routed is None or index < self._routed):
            self._routed = index

    def failed(self, index: int) -> None:
        """Note that a guard could not judge a text."""
        self._count(self._guards[index], "error")

    def _count(self, guard: NamedGuardConfig, action: str) -> None:
        verdicts = self._record.guards
        if verdicts is None:
            verdicts = self._record.guards = {}
        key = (guard.name, action, guard.mode, self._side)
        verdicts[key] = verdicts.get(key, 0) + 1

    def masked(self, text: str, key: str = "") -> str:
        """A whole text with its masks, whose key in an object may say what it is. Raises `ContentFiltered`."""
        if self._rules:
            text = masked(text, self._rules, self.report)
            if key:
                text = masked_by_key(key, text, self._rules, self.report)
        return text if self.personal is None else self.personal.masked(text, key)

    def clears(self, parts: Iterable[bytes | memoryview]) -> bool:
        """Whether no text of these encoded values has anything for the guard to find. False if in doubt."""
        return bool(self._rules) and self.personal is None and is_clear(self._rules, parts)

    def held(self) -> HeldPart | None:
        """A text of a stream; None without rules. Its `feed` raises `ContentFiltered` and `TextTooLong`."""
        return HeldText(self._rules, self.report) if self._rules else None

    def arguments(self) -> HeldPart | None:
        """The arguments of a tool that may leave in parts; None for those that are examined as a whole."""
        return None

    def restoring(self) -> SideGuard:
        """The same without rules: it masks only what the answer receives again."""
        guard = SideGuard(self._guards, (), self._side, self._record, acts=self.acts)
        guard.personal = self.personal
        return guard

    def unreadable(self, subject: str) -> InferenceError:
        """The error of a text that cannot be examined: nothing passes unread."""
        return Unsupported(f"A guard of this request cannot read {subject}.")

    def too_long(self, _: TextTooLong | None = None) -> InferenceError:
        """The error of a text that would be held for too long, or that is too long to be judged."""
        if self._side == "prompt":
            return TooLarge("A guard cannot judge the text of the request: it is too long.")
        return ContentFiltered("A guard cannot examine a part of the text: it is too long.")


class TextsOf:
    """Collects the texts that a guard would examine, instead of examining them."""

    acts = False
    personal: PersonalPrompt | None = None

    def __init__(self, guard: SideGuard) -> None:
        self.texts: list[str] = []
        self._guard = guard

    def masked(self, text: str, key: str = "") -> str:
        """Note a text. Returns it."""
        self.texts.append(text)
        return text

    def clears(self, _: Iterable[bytes | memoryview]) -> bool:
        """False: each text is collected."""
        return False

    def unreadable(self, subject: str) -> InferenceError:
        """See `SideGuard.unreadable`."""
        return self._guard.unreadable(subject)


Examining = SideGuard | TextsOf
"""What receives each text of a request or an answer."""
