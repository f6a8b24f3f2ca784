"""Mistakes planted in nodes without inner nodes: each is refused with its line."""

import pytest

from tests.config.conftest import Complaints

RIGHT = """\
version: 1
pools:
  - {name: gpu, endpoints: ["http://10.0.0.5:8000"]}
  - {name: code, runtime: {kind: tensor, repository: models}}
  - {name: triton, protocol: oip-http, endpoints: ["http://10.0.0.6:8000"]}
models:
  - {name: small, routes: [{to: gpu}]}
  - {name: scorer, routes: [{to: triton}]}
  - {name: script, routes: [{to: code}]}
  - {name: mixed, routes: [{split: {arms: [{pool: code, weight: 1}, {pool: triton, weight: 1}]}}]}
  - name: answers
    pipeline:
      steps:
        - name: best
          in: {query: request.text, candidates: request.documents}
          rerank: {score: scorer, by: s, top: 3}
        - {name: prompt, in: {found: best.candidates}, template: "{{ found | join }}"}
        - {name: answer, model: small, in: {prompt: prompt.text}}
  - name: judged
    pipeline: {judge: {of: [small, {name: again, model: small}], n: 2, model: small}}
  - name: pictures
    pipeline:
      steps:
        - {name: px, in: {image: request.image}, decode: {image: {height: 8, width: 8}}}
        - {name: label, model: scorer, in: {x: px.image}}
  - name: words
    pipeline:
      steps:
        - {name: tok, in: {text: request.text}, tokenize: {tokenizer: ./tokenizer.json}}
        - {name: out, in: {ids: tok.ids}, detokenize: {tokenizer: ./tokenizer.json}}
  - name: scripted
    pipeline:
      steps:
        - {name: post, in: {x: request.x}, call: script}
        - {name: again, in: {x: post.y}, call: {model: script}}
  - name: agreed
    pipeline:
      cascade:
        - {name: cheap, agree: {of: small, n: 3, by: number}, accept_if: agreement > 0.5 and finish == stop}
        - {model: small}
tenants:
  - {name: acme, models: ["*"]}
"""


def test_the_file_is_right(complaints: Complaints) -> None:
    assert complaints(RIGHT) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "query: request.text",
            "qery: request.text",
            '15: models[4].pipeline.steps[0].in.qery: is not an input of `rerank` (did you mean "query"?)',
        ),
        (
            ", candidates: request.documents",
            "",
            "15: models[4].pipeline.steps[0].in: `rerank` needs the input `candidates`",
        ),
        ("score: scorer", "score: scorr", '16: models[4].pipeline.steps[0].rerank.score: no model is named "scorr"'),
        ("score: scorer", "score: small", "16: models[4].pipeline.steps[0].rerank.score: does not take tensors"),
        ("score: scorer, by: s", "embed: small, by: s", "16: models[4].pipeline.steps[0].rerank: `by` belongs to"),
        ("score: scorer, by: s", "by: s", "16: models[4].pipeline.steps[0].rerank: give either `embed` or `score`"),
        (
            "best.candidates",
            "best.candidate",
            '17: models[4].pipeline.steps[1].in.found: the step "best" has',
        ),
        ('template: "{{ found | join }}"', "template: {}", "has either `text` or `messages`"),
        (
            "prompt.text",
            "prompt.messages",
            '18: models[4].pipeline.steps[2].in.prompt: the step "prompt" has',
        ),
        (
            "of: [small, {name: again, model: small}], n: 2",
            "of: small",
            "20: models[5].pipeline.judge: one draft has no other",
        ),
        ("n: 2", "n: 9", "20: models[5].pipeline.judge: 18 drafts are too many: 16 are the most"),
        ("of: [small,", "of: [scorer,", '20: models[5].pipeline.judge.of[0]: "scorer" takes tensors'),
        (
            "of: [small,",
            "of: [smal,",
            '20: models[5].pipeline.judge.of[0].model: no model is named "smal" (did you mean "small"?)',
        ),
        ("name: again, ", "", '20: models[5].pipeline.judge.of[1]: the name "small" is given twice, first on line 20'),
        ("model: small}], n: 2", "modl: small}], n: 2", "20: models[5].pipeline.judge.of[1].modl: unknown"),
        ("in: {image: request.image}, ", "", "24: models[6].pipeline.steps[0].decode: needs `in`"),
        ("height: 8,", "fit: crop,", "`fit` needs `height` and `width`"),
        ("height: 8,", "datatype: UINT8, scale: 2,", "`scale` has no effect on UINT8"),
        ("height: 8,", "color: gray, mean: [1, 2, 3],", "`mean` has 1 number"),
        ("image: {height: 8, width: 8}", "", "give either `image` or `sound`"),
        (
            "{text: request.text}, tok",
            "{txt: request.text}, tok",
            "29: models[7].pipeline.steps[0].in.txt: is not an input",
        ),
        ("tok.ids", "tok.id", '30: models[7].pipeline.steps[1].in.ids: the step "tok" has no output "id" (did you'),
        ("call: script", "call: mixed", "is not served by the bundled tensor runtime alone"),
        ("call: script", "call: scorer", "is not served by the bundled tensor runtime alone"),
        ("call: script", "call: scripted", "calls itself"),
        ("call: script", "call: scrit", 'no model is named "scrit"'),
        ("in: {x: request.x}, ", "", "needs `in`"),
        ("agreement > 0.5", "agreement > 1", "never holds"),
        ("agreement > 0.5", "agrement > 0.5", "agreement"),
        ("of: small, n: 3", "of: small", "one draft has no other"),
        ("of: small, n: 3", "of: scorer, n: 3", '"scorer" takes tensors'),
        ("of: [small,", "of: [judged,", "20: models[5].pipeline.judge.of[0].model: calls itself"),
    ],
)
def test_a_mistake_has_its_line(complaints: Complaints, old: str, new: str, problem: str) -> None:
    assert old in RIGHT
    reported = complaints(RIGHT.replace(old, new, 1))
    assert any(problem in each for each in reported), reported


SERVED = RIGHT.replace(
    "pools:\n", 'pools:\n  - {name: lm, runtime: {kind: llm, model: "bundled:smollm2-135m-instruct"}}\n'
).replace(
    "tenants:",
    """\
  - {name: language, routes: [{to: lm}]}
  - name: served
    pipeline:
      steps:
        - {name: tok2, in: {text: request.text}, tokenize: {model: language}}
        - {name: out2, in: {ids: tok2.ids}, detokenize: {model: language}}
tenants:""",
)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("", "", ""),
        ("tokenize: {model: language}}\n        - {name: out2", "tokenize: {model: langage}}\n        - {name: out2",
         'tokenize.model: no model is named "langage" (did you mean "language"?)'),
        ("detokenize: {model: language}", "detokenize: {model: small}",
         "detokenize: is not served by the bundled LLM runtime alone: each of its pools needs `runtime: {kind: llm}`"),
        (" tokenize: {model: language}", " tokenize: {model: served}", "calls itself: served → served"),
        (" tokenize: {model: language}", " tokenize: {model: language, tokenizer: a.json}",
         "tokenize: give one of `tokenizer` and `model`"),
        ("detokenize: {model: language}", "detokenize: {}", "detokenize: give one of `tokenizer` and `model`"),
    ],
)  # fmt: skip
def test_tokenizers_of_models(complaints: Complaints, old: str, new: str, problem: str) -> None:
    assert old in SERVED
    reported = complaints(SERVED.replace(old, new))
    assert any(each.endswith(problem) for each in reported) if problem else reported == []
