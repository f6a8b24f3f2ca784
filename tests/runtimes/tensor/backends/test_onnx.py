"""ONNX models on the real onnxruntime."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from runtimes.tensor.backends.registry import backend, complete_config, load_model
from runtimes.tensor.configuration.model_config import DynamicBatching, InstanceGroup, ModelConfig, TensorSpec
from runtimes.tensor.datatypes import DTYPES
from runtimes.tensor.instances import placement
from runtimes.tensor.interfaces import Device, Model, ModelFailed, ModelLoadError
from tests.runtimes.tensor import loaded
from tests.runtimes.tensor.backends.onnx_models import ELEMENTS, Value, identity, linear, save
from tests.runtimes.tensor.instances.support import Kind, floats, outputs, running

CONFIG = ModelConfig("model", "onnx")
Quantize = Literal["", "fp16", "int8"]


def complete(folder: Path, config: ModelConfig = CONFIG) -> ModelConfig:
    return complete_config(backend("onnx"), config, folder)


def load(folder: Path, config: ModelConfig = CONFIG, threads: int = 1) -> Model:
    return load_model(backend("onnx"), complete(folder, config), folder, Device(threads=threads)).model


def test_the_file_completes_the_configuration(tmp_path: Path) -> None:
    config = complete(linear(tmp_path))
    assert config.inputs == (TensorSpec("x", "FP32", (64,)),)
    assert config.outputs == (TensorSpec("y", "FP32", (4,)),)
    assert config.max_batch_size == 8
    assert config.dynamic_batching == DynamicBatching()


def test_a_model_of_fixed_size_is_not_batched(tmp_path: Path) -> None:
    config = complete(linear(tmp_path, rows=1))
    assert (config.max_batch_size, config.inputs[0].dims) == (0, (1, 64))


@pytest.mark.processes
async def test_answers_are_onnxruntimes_own_on_a_thread_and_in_a_process(tmp_path: Path) -> None:
    folder = linear(tmp_path)
    x = np.random.default_rng(2).normal(size=(5, 64)).astype(np.float32)
    [expected] = ort.InferenceSession(str(folder / "model.onnx")).run(None, {"x": x})
    kinds: tuple[Kind, ...] = ("thread", "process")
    for kind in kinds:
        config = ModelConfig("model", "onnx", instance_groups=(InstanceGroup(placement=kind),))
        config = await placement.complete(config, folder)
        async with running(config, folder) as instance:
            got = await outputs(instance, {"x": x[:2]}, {"x": x[2:]})
            np.testing.assert_allclose(got["y"], expected, rtol=1e-5, atol=1e-5)
            assert (instance.report.pid > 0) == (kind == "process")


def with_weights_beside(folder: Path, location: str = "weights.bin") -> Path:
    """`linear` with its weights in a file of their own, and the path of that file as the model has it."""
    model = onnx.load(linear(folder) / "model.onnx")
    (folder / "model.onnx").unlink()
    onnx.save_model(
        model, str(folder / "model.onnx"), save_as_external_data=True, location="weights.bin", size_threshold=0
    )
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    for weight in model.graph.initializer:
        next(entry for entry in weight.external_data if entry.key == "location").value = location
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder


@pytest.mark.parametrize("quantize", ["", "fp16", "int8"])
@pytest.mark.parametrize("place", [".", "model.onnx"], ids=["beside", "in_a_folder"])
async def test_weights_in_a_file_of_their_own_are_read(tmp_path: Path, place: str, quantize: Quantize) -> None:
    """The answers are those of the same weights in one file, direct and batched."""
    version = tmp_path / "m" / "1"
    with_weights_beside(version / place)
    (version.parent / "model.yaml").write_text(f"quantize: {quantize}\n" if quantize else "{}\n")
    whole = linear(tmp_path / "whole")
    x = np.random.default_rng(5).normal(size=(6, 64)).astype(np.float32)
    expected = load(whole, ModelConfig("model", "onnx", quantize=quantize)).infer({"x": x})["y"]
    served = await loaded.load(version.parent)
    assert served.config.max_batch_size == 8
    got = await loaded.answers(served, [{"x": row} for row in np.split(x, 3)])
    await loaded.end(served)
    np.testing.assert_allclose(np.concatenate([one["y"] for one in got]), expected, rtol=1e-2 if quantize else 1e-5)


@pytest.mark.parametrize("quantize", ["", "fp16"])
def test_a_missing_file_of_weights_is_named(tmp_path: Path, quantize: Quantize) -> None:
    (with_weights_beside(tmp_path) / "weights.bin").unlink()
    with pytest.raises(ModelLoadError, match=r"^the model's file of weights `weights\.bin` is not beside it$"):
        load(tmp_path, ModelConfig("model", "onnx", quantize=quantize))


@pytest.mark.parametrize("kind", ["above", "absolute", "link"])
def test_weights_outside_of_the_folder_are_refused(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "1"
    there = tmp_path / "weights.bin"
    location = {"above": "../weights.bin", "absolute": str(there), "link": "weights.bin"}[kind]
    with_weights_beside(folder, location)
    (folder / "weights.bin").rename(there)
    if kind == "link":
        (folder / "weights.bin").symlink_to(there)
    with pytest.raises(ModelLoadError, match=r"file of weights .*(is outside of its folder|has an absolute)") as caught:
        load(folder)
    assert str(tmp_path) not in str(caught.value)


@pytest.mark.parametrize("datatype", ELEMENTS)
def test_every_datatype_passes_through(tmp_path: Path, datatype: str) -> None:
    model = load(identity(tmp_path, ELEMENTS[datatype]))
    x = np.array([[0, 1, 1], [1, 0, 1]]).astype(DTYPES[datatype])
    got = model.infer({"x": x})["y"]
    assert got.dtype == DTYPES[datatype]
    np.testing.assert_array_equal(got, x)


def test_texts_are_text(tmp_path: Path) -> None:
    model = load(identity(tmp_path, TensorProto.STRING, ["batch"]))
    assert model.infer({"x": np.array([b"a", "ü\0".encode(), b""], dtype=object)})["y"].tolist() == ["a", "ü\0", ""]
    with pytest.raises(ModelFailed, match="input `x` of this model is text, and an element is not UTF-8"):
        model.infer({"x": np.array([b"\xff"], dtype=object)})


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"inputs": (TensorSpec("X", "FP32", (64,)),)}, "no input `X`: did you mean `x`"),
        ({"inputs": (TensorSpec("x", "FP64", (64,)),)}, "`x` is FP32 in the model and FP64 in its configuration"),
        ({"inputs": (TensorSpec("x", "FP32", (32,)),)}, r"\[-1, 64\] in the model and \[-1, 32\]"),
        ({"outputs": (TensorSpec("z", "FP32", (4,)),)}, "no output `z`: it has y"),
        ({"default_model_filename": "other.onnx"}, r"there is no other\.onnx"),
    ],
)
def test_a_configuration_that_contradicts_the_file_is_refused(
    tmp_path: Path, more: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelLoadError, match=message):
        complete(linear(tmp_path), ModelConfig("model", "onnx", max_batch_size=4, **more))


def test_a_batch_size_needs_a_batch_dimension(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="does not begin with a variable dimension"):
        complete(linear(tmp_path, rows=1), ModelConfig("model", "onnx", max_batch_size=4))


def test_the_error_of_a_broken_file_has_no_local_path(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"\x08\x07 no graph")
    with pytest.raises(ModelLoadError) as caught:
        complete(tmp_path)
    assert "model.onnx" in str(caught.value)
    assert str(tmp_path) not in str(caught.value)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"execution_providers": "TensorrtExecutionProvider"},
            "`TensorrtExecutionProvider` is not in the installed onnxruntime.* install onnxruntime-gpu and TensorRT",
        ),
        ({"execution_providers": "MadeUp"}, "`MadeUp` is not in .*CPUExecutionProvider: install a build"),
        ({"intra_op_thread_count": "many"}, "a number of threads is a whole number, not `many`"),
        ({"graph_optimization_level": "most"}, "`graph_optimization_level` is one of disable, basic, extended, all"),
    ],
)
def test_impossible_parameters_are_refused(tmp_path: Path, parameters: dict[str, str], message: str) -> None:
    with pytest.raises(ModelLoadError, match=message):
        load(linear(tmp_path), ModelConfig("model", "onnx", parameters=parameters))


def test_parameters_reach_the_session(tmp_path: Path) -> None:
    from runtimes.tensor.backends.onnx import session

    parameters = {
        "execution_providers": "CPUExecutionProvider",
        "CPUExecutionProvider.use_arena": "0",
        "inter_op_thread_count": "2",
        "graph_optimization_level": "basic",
        "session.set_denormal_as_zero": "1",
    }
    config = ModelConfig("model", "onnx", parameters=parameters)
    made = session(config, linear(tmp_path) / "model.onnx", Device(threads=3))
    options = made.get_session_options()
    assert options.intra_op_num_threads == 3
    assert options.inter_op_num_threads == 2
    assert options.execution_mode == ort.ExecutionMode.ORT_PARALLEL
    assert options.graph_optimization_level == ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    assert options.get_session_config_entry("session.set_denormal_as_zero") == "1"
    assert options.get_session_config_entry("session.force_spinning_stop") == "1"
    assert made.get_providers() == ["CPUExecutionProvider"]


def test_an_initializer_that_is_an_input_has_its_value_unless_one_is_sent(tmp_path: Path) -> None:
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    values: list[Value] = [("x", TensorProto.FLOAT, ["batch", 1]), ("w", TensorProto.FLOAT, [1])]
    save(tmp_path, nodes, values, [("y", TensorProto.FLOAT, ["batch", 1])], {"w": np.array([5], np.float32)})
    specs = (TensorSpec("x", "FP32", (-1, 1)), TensorSpec("w", "FP32", (1,), optional=True))
    served = load(tmp_path, ModelConfig("m", "onnx", specs, (TensorSpec("y", "FP32", (-1, 1)),)))
    assert served.infer({"x": floats([1])})["y"].tolist() == [[6]]
    assert served.infer({"x": floats([1]), "w": np.array([7], np.float32)})["y"].tolist() == [[8]]
    assert [spec.name for spec in complete(tmp_path).inputs] == ["x"]
