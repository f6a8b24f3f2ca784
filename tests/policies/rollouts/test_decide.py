"""The decisions of a rollout: pure, over counts and seconds."""

from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.schema.rollout import RolloutConfig
from policies.rollouts.decide import OrderRefused, advance, ordered
from policies.rollouts.evidence import alarms, has_mismatch, proofs
from policies.rollouts.progress import KEEP_ENDED, RolloutProgress, Stratum
from policies.rollouts.report import audited, described
from policies.rollouts.tally import MEASURING
from policies.sequential.quantiles import bin_of
from policies.warm import warm_seconds
from tests.support.planned_rollouts import STEPS, plan


def begun(config: RolloutConfig, seconds: float = 60.0) -> RolloutProgress:
    """The first step after its warm-up."""
    return advance(config, advance(config, RolloutProgress("r", "f"), 0.0), seconds)


def counted(progress: RolloutProgress, source: int, to: int, events: tuple[int, int] = (0, 0)) -> RolloutProgress:
    """More requests of each arm, and failures among them."""
    stratum = progress.strata[-1]
    stratum.assigned[0] += source
    stratum.assigned[1] += to
    stratum.ended[0] += source
    stratum.ended[1] += to
    pair = stratum.events.setdefault("failures", [0, 0])
    pair[0] += events[0]
    pair[1] += events[1]
    return progress


def test_a_step_begins_with_a_warm_up_in_which_nothing_counts() -> None:
    config = plan(warmup="1m")
    first = advance(config, RolloutProgress("r", "f"), 1.0)
    assert (first.share, first.step, first.counting, first.order().stratum) == (0.05, 0, False, None)
    assert first.order().shares == (0.95, 0.05)
    warm = advance(config, first, 59.0)
    assert not warm.counting
    counting = advance(config, warm, 1.0)
    assert (counting.counting, counting.order().stratum) == (True, 0)
    assert counting.strata == [Stratum(0.05, 0)]


def test_a_healthy_rollout_goes_through_its_steps_and_is_done() -> None:
    config = plan()
    progress = counted(begun(config), 9500, 500)
    assert (advance(config, progress, 300.0).step, advance(config, progress, 300.0).status) == (0, "running")
    second = advance(config, progress, 600.0)
    assert (second.status, second.step, second.share, second.counting) == ("running", 1, 0.5, False)
    second = counted(advance(config, second, 60.0), 500, 500)
    assert [stratum.share for stratum in second.strata] == [0.05, 0.5]
    done = advance(config, second, 1800.0)
    assert (done.status, done.share, done.order().stratum) == ("done", 1.0, None)
    assert advance(config, done, 9999.0).share == 1.0


def test_an_idle_arm_never_passes() -> None:
    config = plan(requests=100)
    progress = begun(config)
    for _ in range(50):
        progress = advance(config, progress, 3600.0)
    assert (progress.status, progress.step) == ("running", 0)
    assert advance(config, counted(progress, 1881, 99), 1.0).step == 0
    assert advance(config, counted(progress, 19, 1), 1.0).step == 1


def test_more_failures_take_it_back_at_once() -> None:
    config = plan()
    progress = counted(begun(config), 9500, 500, (20, 14))
    back = advance(config, progress, 1.0)
    assert (back.status, back.reason, back.share, back.counting) == ("back", "failures", 0.0, False)
    assert advance(config, back, 1e6).status == "back"


def test_failures_that_both_arms_share_do_not() -> None:
    """An incident: a third of all requests fail."""
    config = plan()
    progress = counted(begun(config), 9500, 500, (3166, 167))
    assert advance(config, progress, 1.0).status == "running"


def test_the_conditions_share_alpha() -> None:
    alone = plan(back_if=[{"metric": "failures"}], alpha="1%")
    both = plan(back_if=[{"metric": "failures"}, {"metric": "first_byte", "slower_than": "2s"}], alpha="1%")
    progress = begun(alone)
    assert alarms(alone, progress)[0].needed == pytest.approx(4.605, abs=0.001)
    assert [alarm.needed for alarm in alarms(both, progress)] == pytest.approx([5.298] * 2, abs=0.001)


def test_a_required_proof_holds_the_rollout_until_it_succeeds() -> None:
    config = plan(on_if=[{"metric": "failures", "below": "2x"}])
    progress = counted(begun(config), 95_000, 5_000)
    held = advance(config, progress, 600.0)
    assert (held.status, held.reason, held.step, held.share) == ("held", "unproven", 0, 0.05)
    proven = counted(held, 95_000, 5_000, (950, 40))
    assert proofs(config, proven)[0].is_proven
    assert (advance(config, proven, 1.0).status, advance(config, proven, 1.0).step) == ("running", 1)


@pytest.mark.parametrize(("choice", "status", "step"), [("go_on", "running", 1), ("back", "back", 0)])
def test_an_unproven_metric_at_the_end_of_a_step(choice: str, status: str, step: int) -> None:
    config = plan(on_if=[{"metric": "failures", "below": "2x"}], unproven=choice)
    after = advance(config, counted(begun(config), 9500, 500), 600.0)
    assert (after.status, after.step) == (status, step)


def test_no_failure_at_all_is_proven_by_its_rate() -> None:
    """Without events no ratio is defined, and 600 to 1,000 requests without a failure prove less than 0.5 %."""
    config = plan(on_if=[{"metric": "failures", "below": "2x", "at_most": "0.5%"}], alpha="5%")
    progress = begun(config)
    assert not proofs(config, counted(progress, 11_400, 600))[0].is_proven
    assert proofs(config, counted(progress, 5_700, 300))[0].is_proven
    assert advance(config, progress, 600.0).step == 1


def test_a_wrong_sample_ratio_suspends_every_verdict() -> None:
    config = plan()
    progress = counted(begun(config), 9700, 300, (0, 30))
    assert has_mismatch(progress)
    held = advance(config, progress, 600.0)
    assert (held.status, held.reason, held.share) == ("held", "sample ratio", 0.05)
    assert advance(config, held, 600.0).status == "held"
    accepted = ordered(config, held, "on")
    assert (accepted.status, accepted.counting, accepted.step) == ("running", False, 0)
    assert not has_mismatch(accepted)


def test_a_pause_holds_the_share_and_an_alarm_still_takes_it_back() -> None:
    config = plan()
    paused = ordered(config, counted(begun(config), 9500, 500), "pause")
    assert (paused.status, paused.reason) == ("held", "paused")
    later = advance(config, paused, 1e6)
    assert (later.status, later.step, later.share) == ("held", 0, 0.05)
    assert advance(config, counted(later, 9500, 500, (0, 20)), 1.0).status == "back"
    resumed = ordered(config, ordered(config, counted(begun(config), 9500, 500), "pause"), "on")
    assert (resumed.status, resumed.step) == ("running", 0)


def test_an_operator_goes_on_and_back() -> None:
    config = plan(keep="1h")
    progress = begun(config)
    assert ordered(config, progress, "on").step == 1
    done = ordered(config, ordered(config, progress, "on"), "on")
    assert (done.status, done.share) == ("done", 1.0)
    with pytest.raises(OrderRefused, match="only `back`"):
        ordered(config, done, "on")
    back = ordered(config, advance(config, done, 3600.0), "back")
    assert (back.status, back.reason, back.share) == ("back", "operator", 0.0)
    with pytest.raises(OrderRefused, match="keep"):
        ordered(config, advance(config, done, 3601.0), "back")
    with pytest.raises(OrderRefused, match="already"):
        ordered(config, back, "back")
    with pytest.raises(OrderRefused, match="cannot be paused"):
        ordered(config, back, "pause")
    anew = ordered(config, back, "on")
    assert (anew.generation, anew.status, anew.strata, anew.step) == (back.generation + 1, "running", [], 0)


def test_weights_that_are_edited_are_a_new_share_with_a_warm_up() -> None:
    before = counted(begun(plan()), 9500, 500, (10, 1))
    edited = plan(steps=[{"weight": "20%", "for": "10m"}, {"weight": "50%", "for": "30m"}])
    after = advance(edited, before, 1.0)
    assert (after.share, after.counting, after.elapsed) == (0.2, False, 0.0)
    after = advance(edited, after, 60.0)
    assert [stratum.share for stratum in after.strata] == [0.05, 0.2]
    assert after.strata[0].events == {"failures": [10, 1]}
    shorter = plan(steps=[{"weight": "5%", "for": "10m"}])
    second = ordered(plan(), before, "on")
    assert advance(shorter, second, 1.0).step == 0


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 50), st.floats(0, 5000), st.sampled_from("tpob")), max_size=30
    ),
    st.sampled_from(["hold", "go_on", "back"]),
)
def test_no_history_leaves_the_rollout_in_an_impossible_state(
    history: list[tuple[int, int, float, str]], unproven: str
) -> None:
    config = plan(on_if=[{"metric": "failures", "below": "3x"}], unproven=unproven, requests=10)
    progress = RolloutProgress("r", "f")
    for source, to, seconds, act in history:
        if progress.counting:
            counted(progress, 10 * source, 10 * to, (min(source, 3), min(to, 2)))
        try:
            verb: Any = {"p": "pause", "o": "on", "b": "back"}.get(act)
            progress = advance(config, progress, seconds) if verb is None else ordered(config, progress, verb)
        except OrderRefused:
            continue
        assert 0 <= progress.step < len(config.steps)
        if progress.status == "back":
            assert progress.share == 0.0
        elif progress.status == "done":
            assert progress.share == 1.0
        else:
            assert progress.share in (0.0, 0.05, 0.5)
        order = progress.order()
        assert order.stratum is None or progress.strata[order.stratum].share == order.shares[1]
        shown = described(config, progress)
        assert shown["status"] == progress.status
        assert all(inf not in condition["ratio"] for condition in shown["back_if"])
        assert audited(config, progress)["weight"] == progress.share


def test_the_report_has_the_evidence_that_times_differ() -> None:
    config, progress = plan(), begun(plan())
    progress.strata[-1].first_byte[0] |= {-50: 400}
    assert "differ" not in described(config, progress)["first_byte"]
    progress.strata[-1].first_byte[1] |= {-40: 400}
    times = described(config, progress)["first_byte"]
    assert times["differ"]["p50"]["e_value"] > 1e6
    assert times["from"]["p50"]["seconds"] < times["to"]["p50"]["seconds"]


@pytest.mark.parametrize("paused", [False, True])
def test_an_order_after_a_reload_with_fewer_steps(paused: bool) -> None:
    """It comes before the first decision about the new file."""
    three = plan(steps=[*STEPS, {"weight": "90%", "for": "10m"}])
    progress = ordered(three, ordered(three, begun(three), "on"), "on")
    if paused:
        progress = ordered(three, progress, "pause")
    assert (progress.step, progress.share) == (2, 0.9)
    assert described(plan(), progress)["step"] == 1
    one = plan(steps=STEPS[:1])
    after = ordered(one, progress, "on")
    if paused:
        assert (after.status, advance(one, after, 1.0).step, advance(one, after, 1.0).share) == ("running", 0, 0.05)
    else:
        assert (after.status, after.share) == ("done", 1.0)


def test_the_answers_of_copies_agree_before_the_first_step() -> None:
    config = plan(shadow_first={"share": "5%"})
    waiting = advance(config, RolloutProgress("r", "f"), 5.0)
    assert (waiting.status, waiting.reason, waiting.share, waiting.order().shadows) == ("running", "shadow", 0.0, True)
    waiting = advance(config, waiting, 1e6)
    assert (waiting.reason, waiting.share, waiting.counting) == ("shadow", 0.0, False)
    passed = advance(config, waiting, 1.0, "agrees")
    assert (passed.status, passed.reason, passed.share, passed.order().shadows) == ("running", "", 0.0, False)
    first = advance(config, passed, 1.0, "differs")
    assert (first.share, first.step, first.counting, first.order().shadows) == (0.05, 0, False, False)


def test_differing_answers_take_the_rollout_back_also_while_it_is_paused() -> None:
    config = plan(shadow_first={"share": "5%"})
    waiting = advance(config, RolloutProgress("r", "f"), 5.0)
    for progress in (waiting, ordered(config, waiting, "pause")):
        back = advance(config, progress, 1.0, "differs")
        assert (back.status, back.reason, back.share, back.order().shadows) == ("back", "shadow", 0.0, False)
    anew = advance(config, ordered(config, back, "on"), 1.0)
    assert (anew.generation, anew.reason) == (2, "shadow")


def test_an_operator_pauses_copies_and_passes_over_them() -> None:
    config = plan(shadow_first={"share": "5%"})
    waiting = advance(config, RolloutProgress("r", "f"), 5.0)
    paused = advance(config, ordered(config, waiting, "pause"), 1.0, "agrees")
    assert (paused.status, paused.reason, paused.order().shadows) == ("held", "paused", False)
    again = advance(config, ordered(config, paused, "on"), 1.0)
    assert (again.status, again.reason, again.order().shadows) == ("running", "shadow", True)
    passed = advance(config, ordered(config, again, "on"), 1.0)
    assert (passed.share, passed.step) == (0.05, 0)


def test_copies_that_are_added_to_a_running_rollout_do_not_stop_it() -> None:
    running = counted(begun(plan()), 95, 5)
    assert advance(plan(shadow_first={"share": "5%"}), running, 1.0).share == 0.05


def test_a_quantile_is_measured_in_the_warm_up_and_then_fixed() -> None:
    config = plan(back_if=[{"metric": "first_byte", "slower_than": "p95"}], warmup="10s")
    progress = advance(config, RolloutProgress("r", "f"), 1.0)
    assert progress.order().stratum == MEASURING
    assert progress.strata == []
    progress = advance(config, progress, 100.0)
    assert not progress.counting  # too few times
    progress.measured = {bin_of(0.1): 190, bin_of(1.0): 10}
    progress = advance(config, progress, 1.0)
    assert progress.counting
    bounds = progress.order().bounds
    assert bounds == {"first_byte>p95": pytest.approx(0.1, rel=0.06)}
    progress.measured = {bin_of(9.0): 1000}
    assert advance(config, progress, 1.0).order().bounds == bounds
    back = ordered(config, progress, "back")
    assert back.order().stratum is None


def test_without_quantiles_nothing_is_measured() -> None:
    assert advance(plan(warmup="10s"), RolloutProgress("r", "f"), 1.0).order().stratum is None


def test_the_old_arm_is_needed_until_keep_has_passed() -> None:
    config = plan(steps=[{"weight": "100%", "for": "1s"}], warmup="0s", requests=1, keep="1h")
    running = begun(config, 1.0)
    assert (running.order().warm, warm_seconds(config, running)) == (True, 3600.0)
    done = advance(config, counted(running, 0, 10), 1.0)
    assert (done.status, done.order().warm, warm_seconds(config, done)) == ("done", True, 3600.0)
    later = advance(config, done, 3000.0)
    assert (later.reason, later.order().warm, warm_seconds(config, later)) == ("", True, 600.0)
    over = advance(config, later, 601.0)
    assert (over.status, over.reason, over.order().warm, warm_seconds(config, over)) == ("done", KEEP_ENDED, False, 0.0)
    longer = plan(steps=[{"weight": "100%", "for": "1s"}], warmup="0s", requests=1, keep="2h")
    assert advance(longer, over, 1.0).order().warm
    back = ordered(config, later, "back")
    assert (back.order().warm, warm_seconds(config, back)) == (False, 0.0)
