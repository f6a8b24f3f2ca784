"""The drawings of `headrace explain`: a pipeline, and the path of a request through it."""

from pathlib import Path

import pytest

from config.cases import RequestConfig
from config.loader import load
from gateway.features.explain.text import explained as written
from gateway.features.explain.why import Policy

FOLDER = Path(__file__).parent


def explained(model: str, file: Path = FOLDER / "pipelines.yaml", **fields: object) -> list[str]:
    request = RequestConfig.model_validate({"tenant": "acme", "model": model, **fields})
    return written(Policy.of(load(file)).explain_description(request, 0.0)).splitlines()


def test_the_graph_is_drawn_with_the_pools_of_its_models() -> None:
    assert explained("helpdesk")[1:-1] == [
        "goes through a pipeline:",
        "  within 20s, for at most 8000 tokens and 0.05 usd",
        "  question: guard toxicity (triton) ← the request",
        "  draft: cascade ← the request, after question",
        "    model small (small-gpu), accepted if logprob.p10 > -1.5 and not refusal",
        "    model large (large-gpu)",
        "  answer: guard toxicity (triton) ← the answer, after draft, question",
    ]
    assert explained("reviewed")[2] == "  draft: model small (small-gpu) ← the request, else text of the file"
    assert explained("labels", front="infer")[2:5] == [
        "  label: ensemble, vote of 1 to 2 for each of at most 4 rows ← image = request.images, skipped if it fails",
        "    model detector (triton)",
        "    second: model detector (triton)",
    ]
    assert explained("ocr", front="infer")[2:5] == [
        "  detect: model detector (triton) ← image = request.image",
        "  read: model recogniser (triton) for each row ← crop = detect.crops",
        "  out: text = read.text",
    ]


@pytest.mark.parametrize(("tokens", "first", "second"), [(9000, "taken", "not taken"), (9, "not taken", "taken")])
def test_a_branch_that_the_request_decides_is_marked(tokens: int, first: str, second: str) -> None:
    assert explained("by-length", prompt_tokens=tokens)[2:4] == [
        f"  model large (large-gpu), if request.prompt_tokens > 4000: {first}",
        f"  model small (small-gpu), else: {second}",
    ]


def test_the_function_of_a_file_is_named(tmp_path: Path) -> None:
    tensor = "[{name: a, datatype: FP32, shape: [1]}]"
    call = f"call: {{file: post.py, function: best, inputs: {tensor}, outputs: {tensor}}}"
    (tmp_path / "post.py").write_text("def best(a):\n    return a\n")
    (tmp_path / "file.yaml").write_text(
        f"""\
version: 1
pools: [{{name: gpu, endpoints: ["http://10.0.0.5:8000"]}}]
models: [{{name: whole, pipeline: {{steps: [{{name: post, in: {{a: request.a}}, {call}}}]}}}}]
tenants: [{{name: acme, models: ["*"]}}]
"""
    )
    lines = explained("whole", tmp_path / "file.yaml", front="infer")
    assert lines[2] == "  post: call best of post.py ← a = request.a"


def test_the_drafts_of_a_judge_are_drawn_below_it() -> None:
    assert explained("judged", FOLDER / "judge.yaml")[2:9] == [
        "  judge of 6 drafts by small (gpu)",
        "    model small (gpu)",
        "    refined: steps",
        "      rough: model small (gpu) ← the request",
        "      last: model small (gpu) ← prompt = rough.text",
        "    agreed: agree of 3 drafts",
        "      model small (gpu)",
    ]
