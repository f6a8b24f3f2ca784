"""Folders of OpenVINO Model Server answer as OpenVINO does with the same settings."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest
from onnx import TensorProto, helper

from runtimes.tensor.interfaces import ModelLoadError
from runtimes.tensor.models.served_model import ServedModel
from tests.runtimes.tensor.backends.onnx_models import linear, save
from tests.runtimes.tensor.loaded import answers, end, load_listed

RNG = np.random.default_rng(3)


def listed(root: Path, **fields: Any) -> None:
    entry = {"name": "net", "base_path": "nets", **fields}
    (root / "config.json").write_text(json.dumps({"model_config_list": [{"config": entry}]}))


def picture(root: Path) -> Path:
    """`y` is the first channel of `x` [batch, 3, height, width], minus the second."""
    nodes = [
        helper.make_node("Split", ["x"], ["r", "g", "b"], axis=1),
        helper.make_node("Sub", ["r", "g"], ["y"]),
    ]
    shape = [None, 3, None, None]
    folder = save(root / "nets" / "1", nodes, [("x", TensorProto.FLOAT, shape)], [("y", TensorProto.FLOAT, shape)])
    ir = folder / "picture.xml"
    ov.save_model(ov.Core().read_model(folder / "model.onnx"), ir, compress_to_fp16=False)
    (folder / "model.onnx").unlink()
    return ir


def exact(path: Path, x: np.ndarray) -> np.ndarray:
    """OpenVINO's own answer, in the precision of the file."""
    answer: np.ndarray = ov.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(x)[0]
    return answer


async def outcome(served: ServedModel, x: np.ndarray) -> np.ndarray:
    (got,) = await answers(served, [{"x": x}])
    await end(served)
    (only,) = got.values()
    return only


@pytest.mark.parametrize("shape", ["(1,3,4,5)", {"x": "(1:2,3,-1,-1)"}, "auto", None])
async def test_shapes(shape: Any, tmp_path: Path) -> None:
    path = picture(tmp_path)
    listed(tmp_path, plugin_config={"NUM_STREAMS": "1"}, **({} if shape is None else {"shape": shape}))
    x = RNG.normal(size=(1, 3, 4, 5)).astype(np.float32)
    expected = exact(path, x)
    np.testing.assert_allclose(await outcome(await load_listed(tmp_path, "net"), x), expected)


@pytest.mark.parametrize("layout", ["NHWC:NCHW", {"x": "NHWC:NCHW"}])
async def test_the_layout_of_requests_is_converted(layout: Any, tmp_path: Path) -> None:
    path = picture(tmp_path)
    listed(tmp_path, layout=layout, batch_size="1")
    x = RNG.normal(size=(1, 4, 5, 3)).astype(np.float32)
    expected = exact(path, x.transpose(0, 3, 1, 2))
    np.testing.assert_allclose(await outcome(await load_listed(tmp_path, "net"), x), expected)


@pytest.mark.parametrize(("size", "dims"), [(1, (1, 64)), ("auto", (64,)), ("1:4", (64,))])
async def test_batch_sizes(size: Any, dims: tuple[int, ...], tmp_path: Path) -> None:
    linear(tmp_path / "nets" / "1")
    listed(tmp_path, batch_size=size)
    served = await load_listed(tmp_path, "net")
    assert served.config.inputs[0].dims == dims
    assert served.config.max_batch_size == {1: 0, "auto": 8, "1:4": 4}[size]
    x = RNG.normal(size=(1, 64)).astype(np.float32)
    expected = exact(tmp_path / "nets/1/model.onnx", x)
    np.testing.assert_allclose(await outcome(served, x), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"shape": "(1,x)"}, "`shape`: 'x' is no number"),
        ({"shape": {"z": "(1,3,4,4)"}}, "`shape` names the input `z`: the model has x"),
        ({"shape": [1, 2]}, "`shape` is one value|`shape`: "),
        ({"shape": {"x": 3}}, "neither text nor an object of texts"),
        ({"shape": "(1,4,4,4)"}, "no such shape"),
        ({"shape": "auto", "batch_size": "1"}, "both given"),
        ({"batch_size": "many"}, "`batch_size`: 'many' is no number"),
        ({"layout": "nhwc"}, "not written as NHWC:NCHW"),
        ({"layout": "NHC:NCHW"}, "does not fit `x`"),
        ({"layout": "NHC:NCH"}, "does not fit `x`"),
        ({"plugin_config": {"NO_SUCH": "1"}}, "refuses the model or a parameter"),
    ],
)
async def test_settings_without_a_meaning_are_refused(fields: dict[str, Any], reason: str, tmp_path: Path) -> None:
    picture(tmp_path)
    listed(tmp_path, **fields)
    with pytest.raises(ModelLoadError, match=reason):
        await end(await load_listed(tmp_path, "net"))
