"""Fields of pipelines without effect, and steps that can only fail: each is refused with its line."""

import pytest

from tests.config.conftest import Complaints

FILE = """\
version: 1
pools:
  - {name: gpu, endpoints: ["http://10.0.0.5:8000"]}
  - {name: triton, protocol: oip-http, endpoints: ["http://10.0.0.6:8000"]}
models:
  - {name: small, routes: [{to: gpu}]}
  - {name: large, routes: [{to: gpu}]}
  - {name: det, routes: [{to: triton}]}
  - {name: rec, routes: [{to: triton}]}
  - name: whole
    pipeline: PIPELINE
tenants:
  - {name: acme, models: ["*"]}
"""
AT = "11: models[4].pipeline."
CASCADE = "cascade: [{model: small, accept_if: not refusal, hold: 3}, {model: large}]"


@pytest.mark.parametrize(
    "pipeline",
    [
        "{ensemble: {members: [{model: small, weight: 2}, large], combine: vote, need: 1, within: 10ms}}",
        "{ensemble: {members: [det, rec], combine: concat, axis: 0}}",
        "{steps: [{name: a, model: det, each: true, at_most: 3, in: {x: request.x}}]}",
        "{steps: [{name: a, each: true, in: {x: request.x}, steps: [{name: b, each: true, model: det}]}]}",
        "{model: small, budget: {tokens: 8k}}",
        "{deadline: 3s, steps: [{name: a, model: small, at_least: 2s}]}",
        "{steps: [{name: a, model: small, on_error: {use: {text: x}}}, {name: b, model: large, in: {prompt: a.text}}]}",
        f"{{steps: [{{name: a, model: large}}, {{name: b, {CASCADE}, in: {{prompt: a.text}}}}]}}",
    ],
)
def test_fields_with_an_effect_are_accepted(complaints: Complaints, pipeline: str) -> None:
    assert complaints(FILE.replace("PIPELINE", pipeline)) == []


@pytest.mark.parametrize(
    ("pipeline", "problem"),
    [
        (
            "{ensemble: {members: [{model: small, weight: 2}, large], combine: first}}",
            "ensemble.members[0].weight: has no effect with `combine: first`",
        ),
        (
            "{ensemble: {members: [det, {model: rec, weight: 2}], combine: concat}}",
            "ensemble.members[1].weight: has no effect with `combine: concat`",
        ),
        (
            "{ensemble: {members: [det, rec], combine: vote, axis: 1}}",
            "ensemble.axis: has no effect with `combine: vote`",
        ),
        (
            "{ensemble: {members: [small], combine: vote}}",
            "ensemble.members: has one member: give a second one, or write it as a `model`",
        ),
        (
            "{ensemble: {members: [small, det], combine: vote}}",
            "ensemble.members: answer with tensors and with texts, which do not combine",
        ),
        (
            "{ensemble: {members: [small, large], combine: vote, within: 10ms}}",
            "ensemble.within: has no effect: all members must answer. Give `need` fewer of them",
        ),
        (
            "{ensemble: {members: [small, large], combine: vote, need: 3}}",
            "ensemble.need: needs 3 answers, and there are 2 members",
        ),
        (
            "{cascade: [{model: det, accept_if: max(score) > 0.5, hold: 3}, {model: rec}]}",
            "cascade[0].hold: has no effect on a model of tensors",
        ),
        (
            f"{{steps: [{{name: a, {CASCADE}}}, {{name: b, model: large, in: {{prompt: a.text}}}}]}}",
            "steps[0].cascade[0].hold: has no effect: the answer of this step is not streamed to the client",
        ),
        (
            "{steps: [{name: a, model: small, at_most: 3}]}",
            "steps[0].at_most: has no effect without `each: true`",
        ),
        (
            "{steps: [{name: a, model: det, max_rows: 3, in: {x: request.x}}]}",
            "steps[0].max_rows: has no effect without `each: true`",
        ),
        (
            "{steps: [{name: a, model: det, each: true}]}",
            "steps[0].each: needs `in`: the values whose rows are computed one by one",
        ),
        (
            "{model: small, budget: {spend: 0.02 usd}}",
            "budget.spend: has no effect: none of its models has a `price`",
        ),
        ("{model: small, budget: {}}", "budget: limits nothing: give `tokens` or `spend`"),
        ("{model: small, budget: {tokens: 0}}", "budget.tokens: must be more than 0, got 0"),
        ("{model: small, budget: {tokens: 8x}}", "budget.tokens: expected a number such as 500, 8k or 1.5M"),
        (
            "{steps: [{name: a, in: {image: request.image}, steps: [{name: b, model: det, in: {x: request.imge}}]}]}",
            'steps[0].steps[0].in.x: the enclosing step has no input "imge": it has image (did you mean "image"?)',
        ),
        (
            "{steps: [{name: a, in: {image: request.x}, steps: [{name: b, model: det}], out: {x: request.imag}}]}",
            'steps[0].out.x: the enclosing step has no input "imag": it has image (did you mean "image"?)',
        ),
        (
            "{deadline: 1s, steps: [{name: a, model: small, at_least: 2s}]}",
            "steps[0].at_least: is not less than the deadline of 1 s: the step always fails",
        ),
        (
            "{steps: [{name: a, model: small, on_error: {use: {txt: x}}}, "
            "{name: b, model: large, in: {prompt: a.text}}]}",
            'steps[1].in.prompt: the values in `on_error` of the step "a" have no "text" (did you mean "txt"?)',
        ),
        (
            "{switch: [{if: request.n > 5, model: small}, {if: request.n > 5, model: large}, "
            "{else: true, model: large}]}",
            "switch[1].if: is the condition of an earlier branch: this branch never answers",
        ),
        (
            "{switch: [{else: true, model: large}]}",
            "switch: has one branch: add one with `if`, or write it as a `model`",
        ),
        (
            "{model: det, inputs: [{name: x, datatype: FP32, shape: [1]}, {name: x, datatype: FP32, shape: [2]}]}",
            'inputs[1].name: "x" is given twice',
        ),
        (
            "{ensemble: {members: [small, {steps: [{name: x, model: whole}]}], combine: vote}}",
            "ensemble.members[1].steps[0].model: calls itself: whole → whole",
        ),
        (
            "{steps: [{name: a, switch: [{if: b.tokens > 1, model: small}, {else: true, model: large}]}, "
            "{name: b, model: small, in: {prompt: a.text}}]}",
            "steps[0].switch[0].if: column 1: there is no value `b`; there are request",
        ),
    ],
)
def test_a_field_without_effect_is_refused(complaints: Complaints, pipeline: str, problem: str) -> None:
    assert AT + problem in complaints(FILE.replace("PIPELINE", pipeline))


def test_a_budget_of_money_needs_prices_of_models(complaints: Complaints) -> None:
    file = FILE.replace("PIPELINE", "{model: small, budget: {spend: 0.02 usd}}")
    priced = file.replace("{name: small,", "{name: small, price: {request: 1 usd},")
    assert complaints(priced) == []
    own = priced.replace("- name: whole", "- name: whole\n    price: {request: 1 usd}")
    assert complaints(own) == [
        "12: models[4].pipeline.budget.spend: has no effect: the pipeline has a `price` of its own"
    ]
