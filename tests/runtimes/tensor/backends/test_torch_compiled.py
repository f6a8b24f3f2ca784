"""Packages of AOTInductor answer as the modules that they were compiled from."""

import warnings
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from runtimes.tensor.backends.registry import backend, explaining, in_thread, load_model
from runtimes.tensor.backends.signature import is_compiled, is_declared
from runtimes.tensor.configuration.model_config import ModelConfig, TensorSpec
from runtimes.tensor.interfaces import Device, Model, ModelFailed, ModelLoadError
from tests.runtimes.tensor.loaded import answers, end, load

TRUSTED = {"allow_pickle": "true"}
YAML = """
backend: torch
max_batch_size: 8
parameters: {allow_pickle: true}
inputs: [{name: x, datatype: FP32, dims: [4]}, {name: scale, datatype: FP32, dims: [1]}]
outputs: [{name: more.sum, datatype: FP32, dims: [1], reshape: []}, {name: line, datatype: FP32, dims: [2]}]
"""


class Scaled(torch.nn.Module):  # type: ignore[misc]
    """Two inputs, one of them by keyword, and nested results."""

    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> dict[str, object]:
        return {"line": torch.relu(self.line(x)) * scale, "more": {"sum": x.sum(1)}}


@pytest.fixture(scope="module")
def module() -> torch.nn.Module:
    torch.manual_seed(1)
    return Scaled().eval()


@pytest.fixture(scope="module")
def package(module: torch.nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a version. A compiler makes it, which takes a while."""
    folder = tmp_path_factory.mktemp("compiled") / "m" / "1"
    folder.mkdir(parents=True)
    rows = {0: torch.export.Dim("rows", max=8)}
    inputs = (torch.randn(3, 4),), {"scale": torch.randn(3, 1)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(module, *inputs, dynamic_shapes={"x": rows, "scale": rows})
        torch._inductor.aoti_compile_and_package(program, package_path=str(folder / "model.pt2"))
        torch.export.save(program, str(folder / "program.pt2"))
    return folder


def config(**more: object) -> ModelConfig:
    inputs = (TensorSpec("x", "FP32", (-1,)), TensorSpec("scale", "FP32", (1,)))
    outputs = (TensorSpec("line", "FP32", (2,)), TensorSpec("more.sum", "FP32", ()))
    made = ModelConfig("m", "torch", inputs, outputs, max_batch_size=8, parameters=TRUSTED)
    return replace(made, **more)  # type: ignore[arg-type]


def loaded(made: ModelConfig, folder: Path) -> Model:
    return load_model(backend("torch"), made, folder, Device(threads=1)).model


async def test_answers_equal_those_of_the_module(module: torch.nn.Module, package: Path) -> None:
    (package.parent / "model.yaml").write_text(YAML)
    served = await load(package.parent)
    assert served.config.dynamic_batching is None  # so each request is a batch of one row, which the code does not take
    rows = np.random.default_rng(2).normal(size=(6, 5)).astype(np.float32)
    got = await answers(served, [{"x": row[None, :4], "scale": row[None, 4:]} for row in rows])
    await end(served)
    with torch.inference_mode():
        expected = module(torch.from_numpy(rows[:, :4]), scale=torch.from_numpy(rows[:, 4:]))
    np.testing.assert_allclose(np.concatenate([one["line"] for one in got]), expected["line"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        np.concatenate([one["more.sum"] for one in got])[:, 0], expected["more"]["sum"], rtol=1e-5, atol=1e-6
    )


def test_native_code_must_be_trusted_and_runs_in_a_process(package: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"has native code.*parameters: \{allow_pickle: true\}"):
        loaded(config(parameters={}), package)
    assert not in_thread(config())
    assert in_thread(config(parameters={}))


@pytest.mark.parametrize(
    ("x", "reason"),
    [
        (np.zeros((2, 3), np.float32), "input `x`: unmatched dim value at 1, expected: 4"),
        (np.zeros((9, 4), np.float32), "input `x`: dim value is too large at 0"),
        (np.zeros((2, 4), np.float64), "input `x`: unmatched dtype"),
    ],
)
def test_a_request_of_another_shape_is_refused(x: np.ndarray, reason: str, package: Path) -> None:
    """The code itself would read beyond the tensor."""
    model = loaded(config(), package)
    with pytest.raises(ModelFailed, match=reason):
        model.infer({"x": x, "scale": np.ones((len(x), 1), np.float32)})
    assert model.infer({"x": np.zeros((2, 4), np.float32), "scale": np.ones((2, 1), np.float32)})
    model.close()


def test_a_tensor_that_is_not_contiguous_is_copied(module: torch.nn.Module, package: Path) -> None:
    model = loaded(config(), package)
    x = np.arange(8, dtype=np.float32).reshape(4, 2).T
    got = model.infer({"x": x, "scale": np.ones((2, 1), np.float32)})
    np.testing.assert_allclose(got["more.sum"], x.sum(1))
    model.close()


def test_another_number_of_inputs_is_refused_at_load(package: Path) -> None:
    made = config()
    with pytest.raises(ModelLoadError, match="the model takes 2 inputs"):
        loaded(replace(made, inputs=made.inputs[:1]), package)


def test_compiled_code_is_neither_converted_nor_differentiated(package: Path) -> None:
    with pytest.raises(ModelLoadError, match="compile it converted"):
        loaded(config(quantize="fp16"), package)
    with pytest.raises(ModelLoadError, match="no gradients"):
        explaining(backend("torch")).explainer(config(explains=config().outputs), package, Device(threads=1))


def test_only_packages_with_code_alone_are_compiled(package: Path, tmp_path: Path) -> None:
    assert is_compiled(package / "model.pt2")
    assert not is_compiled(package / "program.pt2")
    assert not is_declared("torch", config(default_model_filename="program.pt2"), package)
    for name, entry in {"both": "data/aotinductor/model/a.so", "other": "x/models/model.json"}.items():
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("x/models/model.json", "{}")
            archive.writestr(f"x/{entry}", "")
        assert not is_compiled(tmp_path / name)
    (tmp_path / "noise").write_bytes(b"PK\x03\x04noise")
    assert not is_compiled(tmp_path / "noise")
