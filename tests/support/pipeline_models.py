"""Pipelines of Hugging Face as models in this process, and their answers alone and together."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtimes.tensor.backends.registry import backend, complete_config, load_model
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.huggingface.model import PipelineModel
from runtimes.tensor.interfaces import Array, Device, InvalidRow


def load(folder: Path, **parameters: str) -> tuple[ModelConfig, PipelineModel]:
    kind = backend("transformers")
    config = complete_config(kind, ModelConfig("m", "transformers", parameters=parameters), folder)
    model = load_model(kind, config, folder, Device(threads=1)).model
    assert isinstance(model, PipelineModel)
    return config, model


def texts(*rows: str | bytes) -> Array:
    array = np.empty(len(rows), object)
    array[:] = [row.encode() if isinstance(row, str) else row for row in rows]
    return array


def outputs(model: PipelineModel, **inputs: Array) -> dict[str, Array]:
    answer = model.infer(inputs)
    assert isinstance(answer, dict)
    return answer


def refused(model: PipelineModel, **inputs: Array) -> dict[int, str]:
    _, errors = model.infer(inputs)
    assert all(isinstance(one, InvalidRow) for one in errors.values())
    return dict(errors)


def assert_alike(model: PipelineModel, rows: Sequence[Mapping[str, Array]]) -> None:
    """Rows have the same values together as alone; those of different lengths up to their own."""
    together = outputs(model, **{name: np.concatenate([row[name] for row in rows]) for name in rows[0]})
    for at, row in enumerate(rows):
        for name, alone in outputs(model, **row).items():
            own = together[name][at][: alone.shape[1]] if alone.ndim > 1 else together[name][at]
            if alone.dtype.kind == "f":
                np.testing.assert_allclose(own, alone[0], rtol=0, atol=1e-5 * float(np.abs(alone).max(initial=1.0)))
            elif name == "output":
                assert_json_alike(json.loads(own), json.loads(alone[0]))
            else:
                np.testing.assert_array_equal(own, alone[0])


def assert_json_alike(one: Any, other: Any) -> None:
    if isinstance(one, list):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            assert_json_alike(*pair)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_json_alike(one[key], other[key])
    elif isinstance(one, float):
        assert one == pytest.approx(other, abs=1e-5)
    else:
        assert one == other
