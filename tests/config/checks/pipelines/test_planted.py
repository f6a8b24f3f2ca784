"""Mistakes planted in a valid pipeline: each is refused with its line, and a suggestion where there is one."""

import pytest

from config.schema.pipelines.pipeline import KINDS
from tests.config.conftest import Complaints

RIGHT = """\
version: 1
pools:
  - {name: gpu, endpoints: ["http://10.0.0.5:8000"]}
models:
  - {name: small, aliases: [little], routes: [{to: gpu}]}
  - {name: large, routes: [{to: gpu}]}
  - name: whole
    pipeline:
      steps:
        - {name: first, model: small, in: {prompt: request.text}}
        - name: second
          model: large
          in: {prompt: first.text}
      out: {text: second.text, draft: first.text}
  - name: other
    pipeline: {model: whole}
  - name: routed
    pipeline:
      steps:
        - {name: draft, model: small}
        - name: final
          switch:
            - {if: "draft.finish == stop and draft.tokens < 100", model: small}
            - {else: true, model: large}
  - name: cheap
    pipeline:
      cascade:
        - {model: small, accept_if: logprob.p10 > -1.5 and not refusal, hold: 32}
        - {model: large}
  - name: guarded
    pipeline:
      steps:
        - {name: before, guard: {model: small, block_if: 'text == "unsafe"', on: request}}
        - {name: draft, model: large}
        - {name: after, guard: {model: small, block_if: 'text == "unsafe"', on: answer}}
tenants:
  - {name: acme, models: ["*"]}
"""


def test_the_file_is_right(complaints: Complaints) -> None:
    assert complaints(RIGHT) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "model: large",
            "model: lrge",
            '12: models[2].pipeline.steps[1].model: no model is named "lrge" (did you mean "large"?)',
        ),
        (
            "prompt: first.text",
            "prompt: frist.text",
            '13: models[2].pipeline.steps[1].in.prompt: no earlier step is named "frist" (did you mean "first"?)',
        ),
        (
            "prompt: request.text",
            "prompt: second.text",
            '10: models[2].pipeline.steps[0].in.prompt: refers to the step "second", which does not come before this '
            "one: move it up",
        ),
        (
            "draft: first.text",
            "draft: frst.text",
            '14: models[2].pipeline.out.draft: no earlier step is named "frst" (did you mean "first"?)',
        ),
        (
            "name: second",
            "name: first",
            "11: models[2].pipeline.steps[1].name: is given twice, first on line 10",
        ),
        (
            "model: large",
            "model: whole",
            "12: models[2].pipeline.steps[1].model: calls itself: whole → whole",
        ),
        (
            "model: large",
            "model: other",
            "12: models[2].pipeline.steps[1].model: calls itself: whole → other → whole",
        ),
        (
            "pipeline: {model: whole}",
            "aliases: [again]\n    pipeline: {steps: [{name: x, model: again}]}",
            "17: models[3].pipeline.steps[0].model: calls itself: other → other",
        ),
        (
            "in: {prompt: first.text}\n      out: {text: second.text, draft: first.text}",
            "in: {prompt: request.text}",
            "10: models[2].pipeline.steps[0].name: is never used: no later step and no output refers to it, so it would"
            " not run",
        ),
        (
            "model: small, in",
            "model: small, each: true, at_most: 64, in",
            None,
        ),
        (
            "pipeline: {model: whole}",
            "pipeline: {model: whole, out: {a: b.c}}",
            "16: models[3].pipeline: `out` belongs to `steps`",
        ),
        (
            "pipeline: {model: whole}",
            "pipeline: {deadline: 1s}",
            "16: models[3].pipeline: does nothing: give exactly one of " + ", ".join(KINDS),
        ),
        (
            "pipeline: {model: whole}",
            "pipeline: {model: whole, steps: [{name: a, model: small}]}",
            "16: models[3].pipeline: has model and steps: give exactly one of " + ", ".join(KINDS),
        ),
        (
            "pipeline: {model: whole}",
            "pipeline: {model: whole}\n    routes: [{to: gpu}]",
            "15: models[3]: a model has either `routes` or a `pipeline`: give one of the two",
        ),
        (
            "name: second",
            "name: request",
            "11: models[2].pipeline.steps[1].name: expected a step's name: up to 64 letters, digits and _, not "
            "`request`",
        ),
        (
            "prompt: first.text",
            "prompt: first",
            "13: models[2].pipeline.steps[1].in.prompt: expected a reference such as request.image or STEP.NAME",
        ),
        (
            "model: large",
            "model: large\n          at_least: 5",
            "13: models[2].pipeline.steps[1].at_least: expected a duration such as 250ms, 10s, 5m or 1h, got 5",
        ),
        (
            "model: large",
            "model: large\n          on_eror: skip",
            '13: models[2].pipeline.steps[1].on_eror: unknown field (did you mean "on_error"?)',
        ),
        (
            "draft.tokens < 100",
            "draft.tokn < 100",
            "23: models[4].pipeline.steps[1].switch[0].if: column 26: `draft` has no `tokn` "
            '(did you mean "draft.tokens"?)',
        ),
        (
            "draft.tokens < 100",
            "draft.text < 100",
            "23: models[4].pipeline.steps[1].switch[0].if: column 37: `<` cannot compare a text with an integer",
        ),
        (
            "draft.finish == stop and draft.tokens < 100",
            "draft.tokens + 1",
            "23: models[4].pipeline.steps[1].switch[0].if: column 14: the result is an integer; a boolean is required",
        ),
        (
            "draft.finish == stop and draft.tokens < 100",
            "draft.tokens < 0",
            "23: models[4].pipeline.steps[1].switch[0].if: never holds: it does not depend on any value",
        ),
        (
            "draft.finish == stop and draft.tokens < 100",
            "draft.tokens <",
            "23: models[4].pipeline.steps[1].switch[0].if: column 15: the expression ends where a value is expected",
        ),
        (
            "            - {else: true, model: large}\n",
            "",
            "23: models[4].pipeline.steps[1].switch[0]: is the last branch, and other requests have none: add a branch "
            "with `else: true`",
        ),
        (
            "- {else: true, model: large}",
            "- {else: true, model: large}\n            - {else: true, model: small}",
            "24: models[4].pipeline.steps[1].switch[1].else: comes last: no branch after it is ever evaluated",
        ),
        (
            "prompt: first.text",
            "prompt: first.txt",
            '13: models[2].pipeline.steps[1].in.prompt: the step "first" has no output "txt" (did you mean "text"?)',
        ),
        (
            "logprob.p10 > -1.5",
            "logprb.p10 > -1.5",
            "28: models[5].pipeline.cascade[0].accept_if: column 1: there is no value `logprb` "
            '(did you mean "logprob"?)',
        ),
        (
            "logprob.p10 > -1.5 and not refusal",
            "logprob.p10 <= 0",
            "28: models[5].pipeline.cascade[0].accept_if: holds for every request: it does not depend on any value",
        ),
        (
            "accept_if: logprob.p10 > -1.5 and not refusal, hold: 32",
            "hold: 32",
            "28: models[5].pipeline.cascade[0]: needs `accept_if`: without it no later stage ever answers",
        ),
        (
            "- {model: large}\n  - name: guarded",
            "- {model: small}\n  - name: guarded",
            '29: models[5].pipeline.cascade[1]: the name "small" is given twice, first on line 28: give each part a '
            "`name`",
        ),
        (
            "pipeline: {model: whole}",
            "pipeline:\n      ensemble:\n        combine: vote\n        members:\n          - {name: a, model: small}\n"
            "          - {name: a, model: large}",
            '21: models[3].pipeline.ensemble.members[1].name: the name "a" is given twice, first on line 20: give each '
            "part a `name`",
        ),
        (
            "- {model: large}\n  - name: guarded",
            "- {model: large, hold: 1}\n  - name: guarded",
            "29: models[5].pipeline.cascade[1].hold: has no effect: the last stage's answer is always accepted",
        ),
        (
            "guard: {model: small, block_if: 'text == \"unsafe\"', on: request}",
            "guard: {model: smal, block_if: 'text == \"unsafe\"', on: request}",
            '33: models[6].pipeline.steps[0].guard.model: no model is named "smal" (did you mean "small"?)',
        ),
        (
            "block_if: 'text == \"unsafe\"', on: request",
            "block_if: 'tokens < 0', on: request",
            "33: models[6].pipeline.steps[0].guard.block_if: never holds: it does not depend on any value",
        ),
        (
            "on: answer}}",
            "on: request}}",
            "35: models[6].pipeline.steps[2].guard.on: guards nothing: no step follows that it could prevent",
        ),
        (
            "on: request}}",
            "on: answer}}",
            "33: models[6].pipeline.steps[0].guard.on: guards nothing: no step before it has an answer",
        ),
        (
            "on: answer}}",
            "on: answer, window: 50}}",
            "35: models[6].pipeline.steps[2].guard: the overlap is less than the window: each window must have new "
            "text",
        ),
        (
            "- {name: draft, model: large}",
            "- {name: draft, model: guarded}",
            "34: models[6].pipeline.steps[1].model: calls itself: guarded → guarded",
        ),
        (
            "block_if: 'text == \"unsafe\"', on: answer",
            "block_if: 'score > 0.5', on: answer",
            "35: models[6].pipeline.steps[2].guard.block_if: column 1: there is no value `score`; there are "
            "text, finish, refusal, tokens, tool_calls, length, logprob, request, draft",
        ),
    ],
)
def test_a_planted_mistake_is_refused_with_its_line(
    complaints: Complaints, old: str, new: str, problem: str | None
) -> None:
    assert old in RIGHT
    reported = complaints(RIGHT.replace(old, new, 1))
    assert reported == [] if problem is None else problem in reported, reported


def test_a_graph_is_at_most_16_deep(complaints: Complaints) -> None:
    def chain(length: int) -> str:
        steps = "".join(
            f"        - {{name: s{i}, model: small, in: {{prompt: {f's{i - 1}' if i else 'request'}.text}}}}\n"
            for i in range(length)
        )
        return RIGHT.replace(
            "  - name: other\n    pipeline: {model: whole}\n", f"  - name: deep\n    pipeline:\n      steps:\n{steps}"
        )

    assert complaints(chain(16)) == []
    assert complaints(chain(17)) == ["16: models[3].pipeline: has 17 steps one after the other: the maximum is 16"]


def test_a_graph_is_at_most_64_wide(complaints: Complaints) -> None:
    def wide(width: int) -> str:
        steps = "".join(f"        - {{name: s{i}, model: small, in: {{prompt: request.text}}}}\n" for i in range(width))
        out = ", ".join(f"o{i}: s{i}.text" for i in range(width))
        pipeline = f"  - name: wide\n    pipeline:\n      out: {{{out}}}\n      steps:\n{steps}"
        return RIGHT.replace("  - name: other\n    pipeline: {model: whole}\n", pipeline)

    assert complaints(wide(64)) == []
    assert complaints(wide(65)) == ["16: models[3].pipeline: calls 65 models at the same time: the maximum is 64"]
