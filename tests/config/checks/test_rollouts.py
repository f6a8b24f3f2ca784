"""Rollouts that cannot be compared, cannot end, or move nothing: each with its line."""

import pytest

from tests.config.conftest import Complaints

START = """\
version: 1
pools:
  - {name: v1, endpoints: [http://10.0.0.5:8000]}
  - {name: v2, endpoints: [http://10.0.0.6:8000]}
  - {name: tensors, protocol: oip-http, endpoints: [http://10.0.0.7:8000]}
models:
  - name: chat
    routes:
      - rollout:
          name: r
          from: v1
          to: v2
          steps: [{weight: 1%, for: 10m}, {weight: 50%, for: 1h}]
"""
END = """\
  - {name: other, routes: [{to: v1}]}
tenants: [{name: acme, models: ["*"]}]
"""
PLACE = "models[0].routes[0].rollout"
PER_LINE = f"\n{' ' * 10}"


def test_a_rollout_is_valid(complaints: Complaints) -> None:
    assert complaints(START + END) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("to: v2", "to: v1", "12: PLACE.to: is the same as `from`: there is nothing to move"),
        ("to: v2", "to: v22", '12: PLACE.to: no pool is named "v22" (did you mean "v2"?)'),
        (
            "to: v2",
            "to: {pool: v1, rewrite: {force: {temperature: 0}}}",
            '12: PLACE.to: has the name "v1", as `from` has: give it a `name`',
        ),
        ("to: v2", "to: {pool: v2, model: other}", "12: PLACE.to: has one target: give pool or model"),
        ("to: v2", "to: {model: othr}", '12: PLACE.to.model: no model is named "othr" (did you mean "other"?)'),
        ("to: v2", "to: {model: chat}", "12: PLACE.to.model: calls itself: chat → chat"),
        (
            "to: v2",
            "to: {pool: v2, version: '2'}",
            "12: PLACE.to.version: has no effect: versions are for models of tensors; for a chat, use "
            "`rewrite: {model: NAME}`",
        ),
        (
            "weight: 50%",
            "weight: 1%",
            "13: PLACE.steps[1].weight: does not rise: each step has a larger weight than the one before",
        ),
        ("weight: 1%", "weight: 0%", "13: PLACE.steps[0].weight: a share is over 0% and at most 100%"),
        ("weight: 50%", "weight: 101%", "13: PLACE.steps[1].weight: a share is over 0% and at most 100%"),
        ("for: 10m", "for: 30s", "13: PLACE.steps[0].for: is over before the warm-up ends: no event would count"),
        (
            "to: v2",
            "to: v2\n          alpha: 50%",
            "13: PLACE.alpha: alpha is from 0.01% to 20%: the probability of a false alarm, over the whole rollout",
        ),
        ("to: v2", "to: v2\n          alpha: 0.05", "13: PLACE.alpha: expected a percentage such as 20%, got 0.05"),
        (
            "to: v2",
            "to: v2\n          sticky: tenant",
            "13: PLACE.sticky: compares 1 tenants, and needs 50: each tenant is one subject. Use user, key or request",
        ),
        (
            "to: v2",
            "to: v2\n          sticky: user\n          on_if: [{metric: failures, at_most: 1%}]",
            "14: PLACE.on_if[0].at_most: is a rate of requests, and with `sticky` each subject counts once: use below",
        ),
        (
            "to: v2",
            "to: v2\n          back_if: [{metric: failure}]",
            "13: PLACE.back_if[0].metric: expected failures or first_byte or total or retries or rejections or "
            'blocked or refusals or feedback (did you mean "failures"?)',
        ),
        (
            "to: v2",
            "to: v2\n          back_if: [{metric: first_byte}]",
            "13: PLACE.back_if[0]: needs a bound: first_byte with slower_than, such as 2s",
        ),
        (
            "to: v2",
            "to: v2\n          back_if: [{metric: total, slower_than: p95}]",
            "13: PLACE.back_if[0].slower_than: is measured for first_byte only: give a time such as 5s",
        ),
        (
            "to: v2",
            "to: v2\n          warmup: 0s\n          back_if: [{metric: first_byte, slower_than: p95}]",
            "14: PLACE.back_if[0].slower_than: is measured in the warm-up, which lasts 0s",
        ),
        (
            "to: v2",
            "to: v2\n          back_if: [{metric: first_byte, slower_than: p12}]",
            "13: PLACE.back_if[0].slower_than: expected a duration above 0s such as 2s, or a quantile such as p95, "
            "got 'p12'",
        ),
        (
            "to: v2",
            "to: v2\n          back_if: [{metric: failures, slower_than: 2s}]",
            "13: PLACE.back_if[0].slower_than: has no effect: failures has no time",
        ),
        (
            "to: v2",
            "to: v2\n          back_if: [{metric: failures}, {metric: failures, above: 2x}]",
            "13: PLACE.back_if[1]: is given twice: failures",
        ),
        (
            "to: v2",
            "to: v2\n          back_if: [{metric: failures, above: 0.5x}]",
            "13: PLACE.back_if[0].above: is below 1x: a better arm would be taken back",
        ),
        (
            "to: v2",
            "to: v2\n          back_if: [{metric: failures, above: 2}]",
            "13: PLACE.back_if[0].above: expected a factor such as 1.5x, got 2",
        ),
        (
            "to: v2",
            "to: v2\n          on_if: [{metric: failures}]",
            "13: PLACE.on_if[0]: proves nothing: give below, at_most or both",
        ),
        (
            "steps: [{weight: 1%, for: 10m}, {weight: 50%, for: 1h}]",
            "steps: [{weight: 100%}]\n          on_if: [{metric: failures, below: 2x}]",
            "14: PLACE.on_if: can never be proven: at 100% there are no requests of `from` to compare with",
        ),
        (
            "routes:\n",
            "price: {request: 1 usd}\n    routes:\n",
            "",
        ),
        (
            "- rollout:",
            "- to: v1\n        rollout:",
            "9: models[0].routes[0]: a route has one target: give `to`, `split`, `rollout` or `experiment`",
        ),
    ],
)
def test_a_mistake_has_its_line(complaints: Complaints, old: str, new: str, problem: str) -> None:
    expected = [problem.replace("PLACE", PLACE)] if problem else []
    assert complaints((START + END).replace(old, new, 1)) == expected


def test_two_rollouts_have_two_names(complaints: Complaints) -> None:
    second = START.split("routes:\n")[1]
    (problem,) = complaints(START + second + END)
    assert problem.endswith("routes[1].rollout.name: is given twice, first on line 10")


def test_fifty_tenants_are_enough_to_compare_tenants(complaints: Complaints) -> None:
    text = START.replace("to: v2", "to: v2\n          sticky: tenant")
    for count, right in ((49, False), (50, True)):
        tenants = ", ".join(f'{{name: t{i}, models: ["*"]}}' for i in range(count))
        assert (complaints(f"{text}tenants: [{tenants}]\n") == []) is right


def test_a_version_is_for_tensors(complaints: Complaints) -> None:
    text = START.replace("from: v1", "from: tensors").replace("to: v2", "to: {pool: tensors, version: '2'}")
    assert complaints(text + END) == []


def test_the_price_of_another_model_does_not_apply(complaints: Complaints) -> None:
    text = START.replace("to: v2", "to: {model: other}") + END.replace("routes:", "price: {request: 1 usd}, routes:")
    assert complaints(text) == [
        f'12: {PLACE}.to.model: has a price, and "chat" has none: its clients pay the price of the model they name'
    ]


def test_two_models_with_arms_to_each_other_are_a_circle(complaints: Complaints) -> None:
    back = START.split("  - name: chat\n")[1].replace("name: r", "name: back").replace("to: v2", "to: {model: chat}")
    text = START.replace("to: v2", "to: {model: next}") + "  - name: next\n" + back + END
    (problem,) = complaints(text)
    assert "calls itself: " in problem


def test_a_model_of_a_pipeline_has_pools_as_arms(complaints: Complaints) -> None:
    text = START.replace("to: v2", "to: {model: other}") + END.replace(
        "tenants:", "  - {name: p, pipeline: {model: chat}}\ntenants:"
    )
    (problem,) = complaints(text)
    assert 'the pipeline "p" calls this model' in problem
