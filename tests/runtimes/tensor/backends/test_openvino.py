"""Models on the real OpenVINO."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime as ort
import openvino as ov
import pytest
from onnx import TensorProto

from runtimes.tensor.backends.openvino import compiled
from runtimes.tensor.backends.registry import backend, complete_config, load_model
from runtimes.tensor.configuration.model_config import ModelConfig, TensorSpec
from runtimes.tensor.datatypes import DTYPES
from runtimes.tensor.instances import placement
from runtimes.tensor.interfaces import Device, Model, ModelLoadError
from tests.runtimes.tensor.backends.onnx_models import ELEMENTS, identity, linear
from tests.runtimes.tensor.instances.support import outputs, running

CONFIG = ModelConfig("model", "openvino")


def load(folder: Path, config: ModelConfig = CONFIG) -> Model:
    completed = complete_config(backend("openvino"), config, folder)
    return load_model(backend("openvino"), completed, folder, Device(threads=1)).model


async def test_its_own_format_and_onnx_give_the_answers_of_onnxruntime(tmp_path: Path) -> None:
    folder = linear(tmp_path / "onnx")
    x = np.random.default_rng(2).normal(size=(5, 64)).astype(np.float32)
    [expected] = ort.InferenceSession(str(folder / "model.onnx")).run(None, {"x": x})
    (tmp_path / "ir").mkdir()
    ov.save_model(ov.Core().read_model(folder / "model.onnx"), tmp_path / "ir" / "model.xml", compress_to_fp16=False)
    for place in (folder, tmp_path / "ir"):
        config = await placement.complete(CONFIG, place)
        assert config.inputs == (TensorSpec("x", "FP32", (64,)),)
        assert config.outputs == (TensorSpec("y", "FP32", (4,)),)
        assert config.max_batch_size == 8
        async with running(config, place) as instance:
            got = await outputs(instance, {"x": x[:2]}, {"x": x[2:]})
            np.testing.assert_allclose(got["y"], expected, rtol=1e-3, atol=1e-3)


def test_an_answer_is_unchanged_by_the_next(tmp_path: Path) -> None:
    model = load(identity(tmp_path, TensorProto.FLOAT))
    first = model.infer({"x": np.ones((1, 3), np.float32)})["y"]
    model.infer({"x": np.zeros((1, 3), np.float32)})
    assert first.tolist() == [[1, 1, 1]]


@pytest.mark.parametrize("datatype", sorted(set(ELEMENTS) - {"BF16"}))
def test_every_datatype_passes_through(tmp_path: Path, datatype: str) -> None:
    model = load(identity(tmp_path, ELEMENTS[datatype]))
    x = np.array([[0, 1, 1], [1, 0, 1]]).astype(DTYPES[datatype])
    x.flags.writeable = False
    got = model.infer({"x": x})["y"]
    assert got.dtype == DTYPES[datatype]
    np.testing.assert_array_equal(got, x)


def test_bf16_passes_through(tmp_path: Path) -> None:
    x = np.array([[0x3F80, 0x4000, 0xBF80]], np.uint16)
    np.testing.assert_array_equal(load(identity(tmp_path, TensorProto.BFLOAT16)).infer({"x": x})["y"], x)


def test_texts_are_for_another_backend(tmp_path: Path) -> None:
    """OpenVINO 2026.4 frees the memory of a string that is passed through twice."""
    with pytest.raises(ModelLoadError, match="`x` is a string, which is not served here: try the onnx backend"):
        load(identity(tmp_path, TensorProto.STRING, ["batch"]))


def test_it_computes_in_the_files_precision_unless_configured(tmp_path: Path) -> None:
    from runtimes.tensor.backends.openvino import compiled

    path = linear(tmp_path) / "model.onnx"
    made = compiled(CONFIG, path, Device(threads=1))
    assert made.get_property("INFERENCE_PRECISION_HINT") == ov.Type.f32
    assert made.get_property("INFERENCE_NUM_THREADS") == 1
    own = {"INFERENCE_NUM_THREADS": "1", "device": "CPU"}  # more than there are cores is cut short
    made = compiled(ModelConfig("model", "openvino", parameters=own), path, Device(threads=2))
    assert made.get_property("INFERENCE_NUM_THREADS") == 1


def test_the_error_names_the_change(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"there is no model\.xml or model\.onnx"):
        load(tmp_path)
    linear(tmp_path)
    with pytest.raises(ModelLoadError, match="no device `GPU` here: it has CPU"):
        load(tmp_path, ModelConfig("model", "openvino", parameters={"device": "GPU"}))
    with pytest.raises(ModelLoadError, match="quantizes to int8 ahead of time"):
        load(tmp_path, ModelConfig("model", "openvino", quantize="int8"))
    with pytest.raises(ModelLoadError, match="MADE_UP"):
        load(tmp_path, ModelConfig("model", "openvino", parameters={"MADE_UP": "1"}))
    (tmp_path / "model.xml").write_text("<net>")
    with pytest.raises(ModelLoadError) as caught:
        load(tmp_path)
    assert str(tmp_path) not in str(caught.value)


def named(folder: Path, names: set[str]) -> Path:
    """A doubling model whose input has these names."""
    x = ov.opset13.parameter([-1, 3], ov.Type.f32)
    x.output(0).get_tensor().set_names(names)
    y = ov.opset13.add(x, x)
    y.output(0).get_tensor().set_names({"y", "7"})
    ov.save_model(ov.Model([ov.opset13.result(y)], [x], "m"), folder / "model.xml", compress_to_fp16=False)
    return folder


@pytest.mark.parametrize(
    ("names", "first"), [({"10", "images", "images_1"}, "images"), ({"input:0", "input"}, "input"), ({"10"}, "10")]
)
def test_a_tensor_has_any_of_its_names(names: set[str], first: str, tmp_path: Path) -> None:
    named(tmp_path, names)
    rows = np.ones((2, 3), np.float32)
    assert complete_config(backend("openvino"), ModelConfig("m", "openvino"), tmp_path).inputs[0].name == first
    for name in names:
        specs = (TensorSpec(name, "FP32", (3,)),), (TensorSpec("7", "FP32", (3,)),)
        config = complete_config(backend("openvino"), ModelConfig("m", "openvino", *specs, max_batch_size=4), tmp_path)
        served = load_model(backend("openvino"), config, tmp_path, Device(threads=1)).model
        np.testing.assert_array_equal(served.infer({name: rows})["7"], rows * 2)


def test_parameters_of_tritons_backend(tmp_path: Path) -> None:
    config = complete_config(backend("openvino"), ModelConfig("m", "openvino"), named(tmp_path, {"x"}))
    given = {"TARGET_DEVICE": "CPU", "SKIP_OV_DYNAMIC_BATCHSIZE": "YES", "ENABLE_BATCH_PADDING": "NO"}
    model = compiled(replace(config, parameters=given | {"HINT_BF16": "NO"}), tmp_path / "model.xml", Device())
    assert model.get_property("EXECUTION_DEVICES") == ["CPU"]
    compiled(replace(config, parameters={"CACHE_DIR": str(tmp_path / "cache")}), tmp_path / "model.xml", Device())
    assert [*(tmp_path / "cache").iterdir()]
    for name, message in (
        ("NO_SUCH", "refuses.*NO_SUCH"),
        ("CPU_EXTENSION_PATH", "CPU_EXTENSION_PATH.*not served here"),
    ):
        with pytest.raises(ModelLoadError, match=message):
            compiled(replace(config, parameters={name: "/tmp/x.so"}), tmp_path / "model.xml", Device())
