"""Stories with rollouts, experiments and shadows: what they cover, what copies change, and that defects are noticed."""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from adapters.base import Answer
from gateway.features.shadow.copied import CopiedRequest, ShadowCopy
from gateway.features.shadow.copies import ShadowCopies
from gateway.traffic.plan import Composer
from policies.facts import Facts
from policies.rollouts.counting import LiveStratum
from policies.rollouts.live import LiveComparison
from policies.shadowing.live import LiveShadow
from tests.simulation.clients import Outcome
from tests.simulation.comparisons import Variant, has_comparisons
from tests.simulation.story import Story, play

Break = Callable[[pytest.MonkeyPatch], None]
COMPARED = [seed for seed in range(800) if has_comparisons(seed)]


def test_stories_cover_the_ends_of_rollouts_and_of_copies_and_follow_the_shares() -> None:
    kinds: Counter[str] = Counter()
    expected = variance = drawn = 0.0
    for seed in COMPARED[:40]:
        story = play(seed)
        assert not story.problems
        kinds.update(story.kinds)
        for shares, side in story.drawn:
            expected, drawn = expected + shares[1], drawn + (side == 1)
            variance += shares[1] * (1 - shares[1])
    rollouts = {f"rollout {status}" for status in ("running", "held", "back", "done")}
    copies = {
        f"copy {end}" for end in ("equal", "differing", "busy", "timeout", "unreachable", "broken", "rate", "same")
    }
    assert {*rollouts, *copies, "step 1", "experiment over"} <= kinds.keys()
    assert variance > 100
    assert abs(drawn - expected) < 5 * variance**0.5


@pytest.mark.parametrize("seed", [*range(7), *range(8, 13)])
def test_copies_change_nothing_for_clients(seed: int) -> None:
    """The same story with copies of all requests and of nearly none: answers, times and arms are equal."""

    def played(variant: Variant) -> tuple[Story, list[Any]]:
        story = play(seed, variant)
        return story, sorted(map(_of, story.seen))

    copied, with_copies = played("copies")
    alone, without = played("few copies")
    assert copied.problems == alone.problems == []
    assert with_copies == without
    assert any(kind.startswith("copy ") for kind in copied.kinds)
    assert not any(kind.startswith("copy ") for kind in alone.kinds)


def _of(outcome: Outcome) -> tuple[Any, ...]:
    headers = {name: value for name, value in outcome.headers.items() if name != "date"}  # of the real clock
    times = [round(at, 6) for at in (outcome.began, outcome.first_piece, outcome.ended, outcome.silence)]
    return outcome.order.id, outcome.status, headers, outcome.body, times, outcome.whole


# ── defects ───────────────────────────────────────────────────────────────────────────────────────────


def an_arm_without_a_share_is_chosen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LiveComparison, "choose", lambda self, facts, rng: len(self.shares) - 1)


def the_way_back_is_not_applied(patch: pytest.MonkeyPatch) -> None:
    put = LiveComparison.put_shares

    def deaf(self: LiveComparison, shares: tuple[float, ...]) -> None:
        if not self.shares or shares[0] < 1:
            put(self, shares)

    patch.setattr(LiveComparison, "put_shares", deaf)


def subjects_are_drawn_anew(patch: pytest.MonkeyPatch) -> None:
    def restless(self: LiveComparison, facts: Facts, rng: Random) -> int:
        return rng.choices(range(len(self.shares)), self.shares)[0]

    patch.setattr(LiveComparison, "choose", restless)


def ends_count_twice(patch: pytest.MonkeyPatch) -> None:
    count = LiveStratum.count

    def repeating(self: LiveStratum, *args: Any) -> None:
        count(self, *args)
        count(self, *args)

    patch.setattr(LiveStratum, "count", repeating)


def an_arm_is_another_pool(patch: pytest.MonkeyPatch) -> None:
    branch = Composer._branch

    def astray(self: Composer, decision: Any, name: str, *, patient: bool) -> Any:
        return branch(self, decision, max(self._pools), patient=patient)

    patch.setattr(Composer, "_branch", astray)


def copies_are_sent_beside_their_requests(patch: pytest.MonkeyPatch) -> None:
    def eager(self: ShadowCopies, shadow: LiveShadow, request: CopiedRequest, answer: Answer, **_: Any) -> Answer:
        self._ended(ShadowCopy(shadow, request, answer, self.budget), None)
        return answer

    patch.setattr(ShadowCopies, "observe", eager)


def copies_of_broken_answers_are_sent(patch: pytest.MonkeyPatch) -> None:
    ended = ShadowCopies._ended
    patch.setattr(ShadowCopies, "_ended", lambda self, copy, error: ended(self, copy, None))


def a_copy_holds_its_memory(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ShadowCopy, "release", lambda self: None)


def a_copy_holds_its_place(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LiveShadow, "end", lambda self: None)


def a_copy_is_repeated(patch: pytest.MonkeyPatch) -> None:
    compare = ShadowCopies._compare

    async def again(self: ShadowCopies, copy: ShadowCopy) -> None:
        for _ in range(3):
            await compare(self, copy)

    patch.setattr(ShadowCopies, "_compare", again)


BREAKS: tuple[tuple[Break, str], ...] = (
    (an_arm_without_a_share_is_chosen, "whose share was 0"),
    (the_way_back_is_not_applied, "has the shares"),
    (subjects_are_drawn_anew, "moved from arm"),
    (ends_count_twice, "has the ends"),
    (an_arm_is_another_pool, "first"),
    (copies_are_sent_beside_their_requests, "began before the end"),
    (copies_of_broken_answers_are_sent, "without an answer"),
    (a_copy_holds_its_memory, "bytes at idle"),
    (a_copy_holds_its_place, "copies at idle"),
    (a_copy_is_repeated, "was sent"),
)


@pytest.mark.parametrize(("broken", "message"), BREAKS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_broken_rule_is_noticed(broken: Break, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch)
    for seed in COMPARED:
        problems = play(seed).problems
        if any(message in line for line in problems):
            return
    pytest.fail(f"{len(COMPARED)} stories, and none says {message!r}; the last: {problems}")
