"""Misspelt names in pipelines: each is refused with its line and the right spelling."""

import pytest

from tests.config.conftest import Complaints

FILE = """\
version: 1
pools:
  - {name: gpu, endpoints: ["http://10.0.0.5:8000"]}
  - {name: triton, protocol: oip-http, endpoints: ["http://10.0.0.6:8000"]}
  - {name: code, runtime: {kind: tensor, repository: models, bundled: [ocr-turn]}}
models:
  - {name: small, routes: [{to: gpu}]}
  - {name: large, routes: [{to: gpu}]}
  - {name: scorer, routes: [{to: triton}]}
  - {name: script, routes: [{to: code}]}
  - name: texts
    pipeline:
      deadline: 10s
      budget: {tokens: 8k}
      steps:
        - {name: check, guard: {model: small, block_if: 'text == "unsafe"', on: request, window: 100}}
        - {name: find, model: small, on_error: {use: {text: x}}, at_least: 1s}
        - {name: best, in: {query: request.text, candidates: request.documents}, rerank: {embed: large, top: 2}}
        - {name: prompt, in: {reported: best.candidates}, template: {text: "{{ reported }}"}}
        - name: chosen
          in: {prompt: prompt.text}
          switch:
            - {if: find.tokens > 3, model: small}
            - {else: true, judge: {of: [small, large], model: large, both_orders: false}}
        - {name: answer, in: {prompt: chosen.text}, cascade: [{model: small, accept_if: finish == stop}, large]}
  - name: tensors
    pipeline:
      steps:
        - {name: decoded, in: {image: request.image}, decode: {image: {height: 8, width: 8, color: gray}}}
        - {name: called, in: {x: decoded.image}, call: script, each: true, max_rows: 4}
        - name: vote
          in: {x: called.y}
          ensemble: {members: [scorer, {name: other, model: script, weight: 2}], combine: vote, need: 1, within: 1s}
      out: {label: vote.y}
tenants:
  - {name: acme, models: ["*"]}
"""
WORDS = (
    "deadline: 10s", "budget:", "tokens: 8k", "guard:", "block_if:", "window:", "on_error:", "use:", "at_least:",
    "rerank:", "embed:", "top:", "template:", "text: \"{{", "switch:", "judge:", "of:", "both_orders:", "cascade:",
    "accept_if:", "decode:", "height:", "color:", "call:", "each:", "max_rows:", "ensemble:", "members:", "weight:",
    "combine:", "need:", "within:", "bundled:", "steps:",
    "model: small, block_if", "embed: large", "of: [small", "model: large, both", "call: script", "model: script",
    "best.candidates", "prompt.text", "find.tokens", "chosen.text", "decoded.image", "called.y", "vote.y",
    "query:", "candidates:", "finish ==", "combine: vote", "color: gray", "ocr-turn", "on: request,",
)  # fmt: skip
FIRST = {
    "model: small, block_if": "small", "embed: large": "large", "of: [small": "small", "model: large, both": "large",
    "call: script": "script", "model: script": "script", "combine: vote": "vote", "color: gray": "gray",
    "on: request,": "request", "text: \"{{": "text",
}  # fmt: skip
OPEN = {'text: "{{'}
"""Without the field the section has no form, which is reported instead."""


def test_the_file_is_right(complaints: Complaints) -> None:
    assert complaints(FILE) == []


@pytest.mark.parametrize("word", WORDS)
def test_a_misspelt_name_is_refused_with_the_right_one(complaints: Complaints, word: str) -> None:
    assert word in FILE
    name = FIRST.get(word) or word.rstrip(":").partition(":")[0].partition(".")[0].partition(" ")[0]
    wrong = name[:-1] + name[-1] * 2 if len(name) > 2 else name + "x"
    at = FILE.index(word) + word.index(name)
    line = FILE[:at].count("\n") + 1
    reported = complaints(FILE[:at] + wrong + FILE[at + len(name) :])
    assert any(each.startswith(f"{line}: ") and f'did you mean "{name}' in each for each in reported), reported
