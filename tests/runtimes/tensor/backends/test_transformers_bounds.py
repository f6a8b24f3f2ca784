"""What bounds the work of a row of a pipeline, and reports rows beyond it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers

from runtimes.tensor.huggingface import questions
from tests.support.hugging_face import save_bert
from tests.support.pipeline_models import load, outputs, texts


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
