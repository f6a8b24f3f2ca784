"""Mistakes planted in the drafts of judges and agreements: each is refused with its line and the right name."""

import pytest

from tests.config.conftest import Complaints

RIGHT = """\
version: 1
pools:
  - {name: gpu, endpoints: ["http://10.0.0.5:8000"]}
  - {name: triton, protocol: oip-http, endpoints: ["http://10.0.0.6:8000"]}
models:
  - {name: small, routes: [{to: gpu}]}
  - {name: large, routes: [{to: gpu}]}
  - {name: scorer, routes: [{to: triton}]}
  - name: judged
    pipeline:
      steps:
        - {name: first, model: small}
        - name: best
          in: {prompt: first.text}
          judge:
            model: large
            of:
              - small
              - {name: worded, steps: [
                  {name: words, in: {q: request.prompt}, template: "Shortly: {{ q }}"},
                  {name: said, model: small, in: {prompt: words.text}}]}
              - {name: tried, cascade: [{model: small, accept_if: finish == stop}, large]}
              - {name: plain, template: "I do not know."}
              - name: selected
                switch:
                  - {if: first.tokens > 3, model: large}
                  - {else: true, model: small}
        - {name: last, model: small, in: {prompt: best.text}}
  - name: agreed
    pipeline:
      cascade:
        - name: cheap
          agree:
            of:
              - small
              - name: refined
                steps:
                  - {name: rough, model: small}
                  - {name: final, model: large, in: {prompt: rough.text}}
                out: {text: final.text}
          accept_if: agreement > 0.5 and text != "x"
        - large
tenants:
  - {name: acme, models: ["*"]}
"""


def test_the_file_is_right(complaints: Complaints) -> None:
    assert complaints(RIGHT) == []


@pytest.mark.parametrize(
    ("old", "new", "line", "problem"),
    [
        ("              - small\n              - {name: worded", "              - smal\n              - {name: worded",
         18, 'no model is named "smal" (did you mean "small"?)'),
        ("{name: said, model: small", "{name: said, model: smal", 21,
         'no model is named "smal" (did you mean "small"?)'),
        ("q: request.prompt", "q: request.promt", 20, 'the enclosing step has no input "promt"'),
        ("prompt: words.text", "prompt: wrds.text", 21, 'no earlier step is named "wrds" (did you mean "words"?)'),
        ("prompt: words.text", "prompt: words.txt", 21, 'the step "words" has no output "txt" (did you mean "text"?)'),
        ("prompt: words.text", "prompt: said.text", 21, 'the step "said", which does not come before this one'),
        ("accept_if: finish ==", "accept_if: finsh ==", 22, "finsh"),
        ("if: first.tokens", "if: frst.tokens", 26, "frst"),
        ("template: \"I do", "templat: \"I do", 23, 'did you mean "template"?'),
        ("- {name: plain, template: \"I do not know.\"}", "- {name: plain, model: scorer}", 23,
         '"scorer" takes tensors, and drafts are texts'),
        ("- {name: plain, template: \"I do not know.\"}", "- {name: plain, model: judged}", 23, "calls itself"),
        ("- {name: plain, template: \"I do not know.\"}",
         "- {name: plain, template: {messages: [{role: user, content: x}]}}", 23,
         "has no output `text`, which a draft needs: its outputs are `messages`"),
        ("- {name: plain, template: \"I do not know.\"}", "- {name: plain}", 23, "does nothing: give exactly one of"),
        ("- {name: plain, template: \"I do not know.\"}",
         "- {name: plain, guard: {model: small, block_if: text == \"x\", on: answer}}", 23, "guards nothing here"),
        ("name: plain", "name: tried", 23, 'the name "tried" is given twice, first on line 22'),
        ("cascade: [{model: small,", "cascade: [{model: small, hold: 3,", 22,
         "the answer of this step is not streamed"),
        ("model: large\n            of", "model: scorer\n            of", 16, '"scorer" takes tensors'),
        ("out: {text: final.text}", "out: {txt: final.text}", 36,
         'has no output `text`, which a draft needs: its outputs are `txt` (did you mean "txt"?)'),
        ("out: {text: final.text}", "out: {text: final.txt}", 40, 'the step "final" has no output "txt"'),
        ("text != \"x\"", "finish == stop", 41, "finish"),
        ("best.text", "best.tokens", 28, 'the step "best" has no output "tokens"'),
        ("agreement > 0.5", "agrement > 0.5", 41, 'did you mean "agreement"?'),
    ],
)  # fmt: skip
def test_a_mistake_has_its_line(complaints: Complaints, old: str, new: str, line: int, problem: str) -> None:
    assert RIGHT.count(old) == 1, old
    reported = complaints(RIGHT.replace(old, new))
    assert any(each.startswith(f"{line}: ") and problem in each for each in reported), reported


def test_drafts_count_in_the_depth_and_the_width(complaints: Complaints) -> None:
    chain = ", ".join(
        f"{{name: s{at}, model: small{'' if not at else f', in: {{prompt: s{at - 1}.text}}'}}}" for at in range(15)
    )
    deep = f"- {{name: plain, steps: [{chain}]}}"
    old = '- {name: plain, template: "I do not know."}'
    assert any("has 18 steps one after the other" in each for each in complaints(RIGHT.replace(old, deep)))
    wide = (
        "- {name: plain, ensemble: {combine: vote, members: ["
        + ", ".join(f"{{name: m{at}, model: small}}" for at in range(64))
        + "]}}"
    )
    reported = complaints(RIGHT.replace(old, wide))
    assert any("calls 69 models at the same time" in each for each in reported), reported
