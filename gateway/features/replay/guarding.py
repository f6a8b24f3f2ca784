"""The verdicts of guards on recorded texts, under another configuration.

A guard that the file has as the record had it has its recorded verdict. Any other guard that compares texts reads the
recorded ones. What a model or a service would judge is not known without a call, so those guards have their recorded
verdict too.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Raw

from config.schema.guards import JudgingGuardConfig, NamedGuardConfig
from gateway.auth.keys import Principal
from gateway.features.guards import texts
from gateway.features.guards.prompts import NO_TEXTS
from gateway.features.guards.table import compiled
from gateway.features.recording.contents import GRPC, HEADER_LENGTH
from gateway.features.recording.entries import Content, RecordedVerdict
from gateway.features.recording.policy import Predicted, RecordedPolicy
from gateway.features.replay.records import RecordedRequest
from policies.guards.masking import RulesByView, TextTooLong, by_view, masked, masked_by_key
from policies.guards.selection import guards_of

_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_TENSORS = ("/v2/", "/v1/models/")
Change = tuple[str, str]
"""A verdict in the record, and in the replay; empty for none."""


class GuardReplay:
    """The guards of a configuration over recorded requests. Raises `FleetError` for one that cannot be compiled."""

    def __init__(self, policy: RecordedPolicy) -> None:
        self._policy = policy
        self._rules: dict[str, RulesByView] = {
            guard.name: by_view(compiled(guard))
            for guard in policy.config.guards
            if not isinstance(guard, JudgingGuardConfig)
        }
        self._seen: Counter[str] = Counter()
        """Requests by what could not be repeated: `judged`, `masked` and `absent`."""
        self._judged: set[str] = set()

    def changes(self, request: RecordedRequest, decided: Predicted, principal: Principal) -> Sequence[Change]:
        """The verdicts that differ. A request that the new policy refuses meets no guard."""
        entry = request.entry
        if decided.refused or not entry.model or not (self._rules or entry.guards or self._policy.config.guards):
            return ()
        before = {(verdict.guard, verdict.on): verdict for verdict in entry.guards}
        after = dict(self._verdicts(request, decided, principal, before))
        pairs = ((_shown(before.get(place)), _shown(after.get(place))) for place in sorted({*before, *after}))
        return [(old, new) for old, new in pairs if old != new]

    def notes(self) -> list[str]:
        """What the replay could not repeat."""
        made = []
        if self._judged:
            made.append(f"Guards that judge have their recorded verdict: {', '.join(sorted(self._judged))}.")
        if count := self._seen["masked"]:
            made.append(f"In {count:,} requests a guard masked or withheld a text, so it counts as found again.")
        if count := self._seen["absent"]:
            made.append(f"{count:,} texts are not in the record: guards of them have their recorded verdict.")
        return made

    def _verdicts(
        self,
        request: RecordedRequest,
        decided: Predicted,
        principal: Principal,
        before: dict[tuple[str, str], RecordedVerdict],
    ) -> Iterator[tuple[tuple[str, str], RecordedVerdict]]:
        place = principal.tenant, decided.configured, decided.route
        for guard in guards_of(self._policy.config, *place, principal.roles, principal.key_id):
            for side in guard.on:
                recorded = before.get((guard.name, side))
                if self._is_unchanged(guard, request, decided, principal, has_verdict=recorded is not None):
                    finds = None
                else:
                    finds = self._finds(guard, side, request, recorded)
                if finds is None and recorded is not None:
                    yield (guard.name, side), _under(guard, recorded)
                elif finds:
                    yield (guard.name, side), RecordedVerdict(guard.name, guard.action, guard.mode, side)

    def _is_unchanged(
        self,
        guard: NamedGuardConfig,
        request: RecordedRequest,
        decided: Predicted,
        principal: Principal,
        *,
        has_verdict: bool,
    ) -> bool:
        """Whether the record has the verdict of this very guard. Without one, the request must have met it."""
        old, new, entry = request.policy.digests, self._policy.digests, request.entry

        def same(part: str) -> bool:
            return old.get(part) == new.get(part)

        if not same(f"guard {guard.name}"):
            return False
        place = entry.configured == decided.configured and entry.route == decided.route
        return has_verdict or (place and same(f"model {entry.configured}") and same(f"guards {principal.tenant}"))

    def _finds(
        self, guard: NamedGuardConfig, side: str, request: RecordedRequest, recorded: RecordedVerdict | None
    ) -> bool | None:
        """Whether a guard finds something in a recorded text; None for the verdict of the record."""
        if guard.name not in self._rules:
            self._judged.add(guard.name)
            return None
        if recorded is not None and recorded.hides:
            self._seen["masked"] += 1
            return True
        content = request.content
        try:
            finds = None if content is None else matches(content, side, self._rules[guard.name])
        except (ValueError, TextTooLong):
            finds = None
        if finds is None and not (side == "answer" and request.entry.error):
            self._seen["absent"] += 1
        return finds


def matches(content: Content, side: str, rules: RulesByView) -> bool | None:
    """Whether rules find something in a recorded body; None for one that cannot be read. Raises `ValueError` and
    `TextTooLong`."""
    body = content.body if side == "prompt" else content.answer
    headers = content.headers if side == "prompt" else content.answer_headers
    if not body or not content.path or content.path.startswith(GRPC) or HEADER_LENGTH in headers:
        return None
    reported: list[int] = []

    def mask(text: str, key: str = "") -> str:
        text = masked(text, rules, reported.append)
        return masked_by_key(key, text, rules, reported.append) if key else text

    if content.path.startswith("/apps/"):
        texts.masked_json(body, mask, free=True)
    elif content.path.startswith(_TENSORS):
        texts.masked_tensors(body, mask)
    elif side == "answer":
        texts.masked_json(body, mask, answers=True)
    else:
        try:
            fields = _fields(body)
        except msgspec.MsgspecError as error:
            raise ValueError(str(error)) from None
        for name in fields.keys() - NO_TEXTS:
            texts.masked_field(memoryview(fields[name]), mask, name)
    return bool(reported)


def _under(guard: NamedGuardConfig, recorded: RecordedVerdict) -> RecordedVerdict:
    """A recorded verdict with what the guard of the file does about it."""
    if recorded.action == "error":
        return recorded
    return RecordedVerdict(guard.name, guard.action, guard.mode, recorded.on)


def _shown(verdict: RecordedVerdict | None) -> str:
    if verdict is None:
        return ""
    mode = ", monitor" if verdict.mode == "monitor" else ""
    return f"{verdict.guard}: {verdict.action} {verdict.on}{mode}"
