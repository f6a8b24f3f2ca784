"""The verdict about discordant pairs: exact under the hypothesis, certain for a difference, valid at every look."""

import random
from itertools import product
from math import exp

import pytest

from config.schema.config import CompareConfig, ShadowConfig
from policies.sequential.event_ratio import EventCount, log_rise
from policies.shadowing.pairs import MOST_FIELDS, PairTally, verdict


def shadow(**fields: object) -> ShadowConfig:
    return ShadowConfig.model_validate({"to": "v2", **fields})


def test_the_mean_of_the_e_value_is_1_for_equal_answers() -> None:
    """Over all sequences of ten discordant pairs, each the shadow's with probability 1/2."""
    total = sum(exp(log_rise([EventCount(0.5, 10, sum(pairs))])) for pairs in product((0, 1), repeat=10))
    assert total / 2**10 == pytest.approx(1)


def test_nine_differences_of_a_steady_primary_are_certain() -> None:
    config = shadow()
    judged = [verdict(config, PairTally(compared=1000, differing=count)).judgement for count in range(12)]
    assert judged == ["undecided"] * 9 + ["differs"] * 3


def test_noise_excuses_differences() -> None:
    """Texts that are sampled differ in most pairs, also between two answers of the primary."""
    config = shadow(noise="20%")
    noisy = PairTally(repeated=1000, shadow_only=160, repeat_only=160, both=640)
    assert verdict(config, noisy).judgement == "undecided"
    assert verdict(config, PairTally(repeated=1000, shadow_only=220, repeat_only=130, both=500)).judgement == "differs"
    assert verdict(config, PairTally(compared=10**6, differing=10**6)).judgement == "undecided"


def test_agreement_needs_answers_and_a_bound() -> None:
    config = shadow(agree="98%")
    judged = [verdict(config, PairTally(compared=count)).judgement for count in (0, 50, 100, 1000)]
    assert judged == ["undecided", "undecided", "undecided", "agrees"]
    assert verdict(shadow(agree="98%", answers=5000), PairTally(compared=1000)).judgement == "undecided"
    assert verdict(config, PairTally(compared=20_000, differing=200)).judgement == "agrees"
    assert verdict(config, PairTally(compared=20_000, differing=800)).judgement == "differs"


@pytest.mark.parametrize(("noise", "most"), [(0.0, 0), (0.05, 2), (0.5, 2)])
def test_equal_answers_are_not_judged_at_any_look(noise: float, most: int) -> None:
    """20 shadows of 400 copies, each looked at after every discordant pair; 1 % may be judged: 2 with three standard
    deviations and some. `tests/policies/sequential/test_event_ratio.py` has the exact share."""
    rng, config, alarms = random.Random(5), shadow(noise="100%"), 0
    for _ in range(20):
        tally, last = PairTally(), 0
        for _ in range(400):
            tally.count(("text",) if rng.random() < noise else (), rng.random() < noise)
            discordant = tally.shadow_only + tally.repeat_only
            if discordant > last and verdict(config, tally).judgement == "differs":
                alarms += 1
                break
            last = discordant
    assert alarms <= most


def test_a_fault_in_one_of_a_hundred_answers_is_detected() -> None:
    rng, config, needed = random.Random(6), shadow(noise="100%"), list[int]()
    for _ in range(20):
        tally, judgement = PairTally(), ""
        while judgement != "differs":
            before = tally.shadow_only, tally.repeat_only
            tally.count(("text",) if rng.random() < 0.02 else (), rng.random() < 0.01)
            if (tally.shadow_only, tally.repeat_only) != before:  # only such a pair changes the verdict
                judgement = verdict(config, tally).judgement
            assert tally.repeated < 30_000
        needed.append(tally.repeated)
    assert sorted(needed)[10] < 6000


def test_counts_add_up() -> None:
    rng = random.Random(7)
    parts = [PairTally() for _ in range(3)]
    whole = PairTally()
    for number in range(500):
        fields = tuple(f"f{rng.randrange(50)}" for _ in range(rng.randrange(3)))
        repeat = rng.choice((None, False, True))
        parts[number % 3].count(fields, repeat)
        whole.count(fields, repeat)
    total = PairTally()
    for part in parts:
        total.add(part)
    assert (total.compared, total.differing, total.repeated) == (whole.compared, whole.differing, whole.repeated)
    assert (total.shadow_only, total.repeat_only, total.both) == (whole.shadow_only, whole.repeat_only, whole.both)
    assert sum(total.fields.values()) == sum(whole.fields.values())
    assert len(total.fields) <= MOST_FIELDS + 1


def test_the_default_comparison_ignores_case_and_spaces() -> None:
    assert [test.same for test in CompareConfig().text] == ["normalized"]
