"""Classifiers with several labels, and models of chats that think before their verdict."""

import json
from typing import Any

import pytest

from adapters.fake import FakeAdapter, Script
from adapters.requests import GenerateRequest
from tests.support.guarding import received
from tests.support.judging import BY_CHAT, answer, judged, prompt_of

PATH = "/v1/chat/completions"
CLASSES = ["SAFE", "JAILBREAK", "INJECTION"]
LABELS: dict[str, Any] = {
    "name": "g", "kind": "injection", "model": "judge", "labels": ["INJECTION", "JAILBREAK"], "threshold": 0.3,
}  # fmt: skip
THINKING: dict[str, Any] = {**BY_CHAT, "on": ["prompt"], "thinking_tokens": 2000}


def classifier(label: str, *probs: float) -> FakeAdapter:
    row = {"index": 0, "label": label, "probs": probs, "num_classes": len(probs)}
    return FakeAdapter(Script(chunks=(json.dumps({"data": [row]}).encode(),)))


@pytest.mark.parametrize(
    ("label", "probs", "classes", "expected"),
    [
        ("SAFE", (0.5, 0.1, 0.4), CLASSES, 400),
        ("SAFE", (0.5, 0.4, 0.1), CLASSES, 400),
        ("SAFE", (0.6, 0.2, 0.2), CLASSES, 200),
        ("JAILBREAK", (0.5, 0.9, 0.8), CLASSES, 400),  # of independent probabilities
        ("INJECTION", (0.1, 0.1, 0.8), [], 400),
        ("SAFE", (0.8, 0.1, 0.1), [], 200),
        ("SAFE", (0.5, 0.1, 0.4), [], 502),
        ("SAFE", (0.2, 0.5, 0.3), CLASSES, 502),
        ("SAFE", (0.9, 0.1), CLASSES, 502),
        ("SAFE", (), CLASSES, 502),
    ],
)
async def test_any_label_over_the_threshold_counts(
    label: str, probs: tuple[float, ...], classes: list[str], expected: int
) -> None:
    one = judged(answer("fine"), classifier(label, *probs), {**LABELS, **({"classes": classes} if classes else {})})
    ((status, _, _),) = await received(one, PATH, **prompt_of("a text"))
    assert status == expected
    one.assert_idle()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("yes", 400),
        ("no", 200),
        ("<think>It is about yes.</think>\n\nno", 200),
        ("No, wait, that is a thought.</think>Yes.", 400),
        ("<think>I have not enough room to", 502),
    ],
)
async def test_a_model_thinks_before_its_verdict(text: str, expected: int) -> None:
    judge = answer(text)
    one = judged(answer("fine"), judge, THINKING)
    ((status, _, _),) = await received(one, PATH, **prompt_of("a text"))
    assert status == expected
    request = judge.calls[0].request
    assert isinstance(request, GenerateRequest)
    assert request.max_tokens == 2016
    assert "temperature" not in request.fields


async def test_a_verdict_without_thoughts_is_short() -> None:
    judge = answer("no")
    one = judged(answer("fine"), judge, {**BY_CHAT, "on": ["prompt"]})
    await received(one, PATH, **prompt_of("a text"))
    request = judge.calls[0].request
    assert isinstance(request, GenerateRequest)
    assert request.max_tokens == 16
    assert bytes(request.fields["temperature"]) == b"0"
