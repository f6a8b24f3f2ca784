"""What bounds the work of a row of a pipeline, and reports rows beyond it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers

from runtimes.tensor.huggingface import questions
from tests.support.hugging_face import LIMIT, save_bert
from tests.support.pipeline_models import load, outputs, refused, texts

ENTAILMENT: dict[str, Any] = {
    "id2label": {0: "contradiction", 1: "neutral", 2: "entailment"},
    "label2id": {"contradiction": 0, "neutral": 1, "entailment": 2},
}


def test_a_text_that_is_too_long_beside_any_label_is_refused(tmp_path: Path) -> None:
    """A label of fewer characters may have more tokens."""
    folder = save_bert(tmp_path / "model", transformers.BertForSequenceClassification, **ENTAILMENT)
    _, model = load(folder, task="zero-shot-classification", hypothesis_template="{}")
    beside = LIMIT - len(("[CLS]", "[SEP]", "numbers", "[SEP]"))
    labels = np.stack([texts("numbers", "a a !")])
    errors = refused(model, args=texts(" ".join(["one"] * beside)), candidate_labels=labels)
    assert errors == {0: f"`args` has {LIMIT + 2} tokens, and {LIMIT} is the most."}
    got = outputs(model, args=texts(" ".join(["one"] * (beside - 2))), candidate_labels=labels)
    assert sorted(got["labels"][0].tolist()) == [b"a a !", b"numbers"]


def test_windows_of_a_long_context_are_computed_in_bounded_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, model = load(save_bert(tmp_path / "model", transformers.BertForQuestionAnswering))
    task: Any = model._task
    sizes: list[int] = []
    forward = task.pipe.forward

    def counted(inputs: Any) -> Any:
        sizes.append(len(inputs["input_ids"]))
        return forward(inputs)

    row = {"question": texts("one"), "context": texts("one a longer text " * 20)}
    expected = outputs(model, **row)
    monkeypatch.setattr(questions, "_WINDOWS", 2)
    monkeypatch.setattr(task.pipe, "forward", counted)
    got = outputs(model, **row)
    assert len(sizes) > 1
    assert max(sizes) == 2
    for name in ("answer", "start", "end"):
        assert got[name].tolist() == expected[name].tolist()
    np.testing.assert_allclose(got["score"], expected["score"], atol=1e-5)
