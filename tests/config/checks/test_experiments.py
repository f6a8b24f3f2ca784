"""Experiments that compare nothing, have no metric, or have settings without effect: each with its line."""

import pytest

from tests.config.conftest import Complaints

FILE = """\
version: 1
pools:
  - {name: a, endpoints: [http://10.0.0.5:8000]}
  - {name: b, endpoints: [http://10.0.0.6:8000]}
feedback:
  - {name: solved}
  - {name: stars, type: number, min: 1, max: 5}
models:
  - name: chat
    routes:
      - experiment:
          name: e
          metric: solved
          sticky: user
          arms: [a, b]
tenants: [{name: acme, models: ["*"]}]
"""
PLACE = "models[0].routes[0].experiment"


def test_an_experiment_is_valid(complaints: Complaints) -> None:
    assert complaints(FILE) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "metric: solved",
            "metric: solvd",
            '13: PLACE.metric: no metric of `feedback` is named "solvd" (did you mean "solved"?)',
        ),
        ("arms: [a, b]", "arms: [a, a]", "15: PLACE.arms[1]: is the same as arm 1: there is nothing to compare"),
        ("arms: [a, b]", "arms: [a, c]", '15: PLACE.arms[1]: no pool is named "c"'),
        (
            "arms: [a, b]",
            "arms: [a, {pool: a, rewrite: {force: {temperature: 0}}}]",
            '15: PLACE.arms[1]: has the name "a", as arm 1 has: give it a `name`',
        ),
        ("arms: [a, b]", "arms: [a, {pool: b, weight: 0}]", "15: PLACE.arms[1].weight: must be more than 0, got 0"),
        ("arms: [a, b]", "arms: [a, {model: chat}]", "15: PLACE.arms[1].model: calls itself: chat → chat"),
        (
            "arms: [a, b]",
            "arms: [a, b]\n          floor: 10%",
            "16: PLACE.floor: has no effect without `decide: thompson`: the shares stay",
        ),
        (
            "arms: [a, b]",
            "arms: [a, b]\n          decide: thompson\n          floor: 60%",
            "17: PLACE.floor: a floor is from 1% to 50%: without requests, nothing is learned about an arm",
        ),
        (
            "sticky: user",
            "baseline: 1d",
            "14: PLACE.baseline: has no effect with `sticky: request`: no subject has values before the comparison. "
            "Use user or key",
        ),
        (
            "sticky: user",
            "sticky: tenant",
            "14: PLACE.sticky: compares 1 tenants, and needs 50: each tenant is one subject. Use user, key or request",
        ),
        ("sticky: user", "longest: 30s", "14: PLACE.longest: is over before the comparison begins"),
        (
            "sticky: user",
            "guards: [{metric: feedback, of: stars}]",
            "14: PLACE.guards[0]: needs a bound: a number is bad if it is worse than `worse_than`",
        ),
        (
            "sticky: user",
            "guards: [{metric: feedback, of: solved, worse_than: 2}]",
            '14: PLACE.guards[0].worse_than: has no effect: "solved" is not a number',
        ),
        (
            "sticky: user",
            "guards: [{metric: feedback}]",
            "14: PLACE.guards[0]: needs a metric of `feedback`: feedback with `of`, such as thumbs",
        ),
        (
            "sticky: user",
            "guards: [{metric: feedback, of: star}]",
            '14: PLACE.guards[0].of: no metric of `feedback` is named "star" (did you mean "stars"?)',
        ),
        (
            "sticky: user",
            "guards: [{metric: failures, of: solved}]",
            "14: PLACE.guards[0].of: has no effect: it is for the metric feedback",
        ),
        (
            "sticky: user",
            "guards: [{metric: total}]",
            "14: PLACE.guards[0]: needs a bound: total with slower_than, such as 2s",
        ),
        (
            "- {name: solved}",
            "- {name: solved}\n  - {name: solved}",
            "7: feedback[1].name: is given twice, first on line 6",
        ),
        (
            "max: 5",
            "max: 1",
            "7: feedback[1]: a number needs min and max, with min below max: larger values are refused",
        ),
        ("{name: solved}", "{name: solved, max: 3}", "6: feedback[0]: only a metric of type number has min and max"),
        (
            "{name: solved}",
            "{name: solved, type: thumbs, better: lower}",
            '6: feedback[0]: "up" is better than "down": give the type boolean for a metric that is better when lower',
        ),
    ],
)
def test_a_mistake_has_its_line(complaints: Complaints, old: str, new: str, problem: str) -> None:
    assert old in FILE
    assert complaints(FILE.replace(old, new, 1)) == [problem.replace("PLACE", PLACE)]


def test_metrics_without_a_comparison_have_no_effect(complaints: Complaints) -> None:
    before, after = FILE.split("      - experiment:")
    text = before + "      - to: a\n" + after[after.index("tenants:") :]
    assert complaints(text) == [
        "5: feedback: has no effect: no route has an experiment, or a rollout with a condition on feedback"
    ]


def test_a_rollout_reads_a_metric_with_its_own_name(complaints: Complaints) -> None:
    before, after = FILE.split("      - experiment:")
    rollout = (
        "      - rollout: {name: r, from: a, to: b, steps: [{weight: 5%}], back_if: [{metric: feedback, of: solved}]}\n"
    )
    assert complaints(before + rollout + after[after.index("tenants:") :]) == []
    both = FILE.replace("tenants:", rollout.replace("name: r", "name: e") + "tenants:")
    (problem,) = complaints(both)
    assert problem.endswith("routes[1].rollout.name: is given twice, first on line 12")
