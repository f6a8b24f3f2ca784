"""PyTorch models: scripted, exported, and plain modules with their weights."""

import asyncio
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from runtimes.tensor.backends.registry import backend, complete_config, load_model
from runtimes.tensor.configuration.model_config import ModelConfig, TensorSpec
from runtimes.tensor.datatypes import DTYPES, bf16_to_fp32, fp32_to_bf16
from runtimes.tensor.instances import placement
from runtimes.tensor.interfaces import Array, Device, Model, ModelFailed, ModelLoadError
from tests.runtimes.tensor.instances.support import floats, outputs, running, write

SOURCE = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)
    def forward(self, x):
        return self.linear(x)
"""
X, Y = TensorSpec("x", "FP32", (3,)), TensorSpec("y", "FP32", (2,))
LINEAR = ModelConfig("model", "torch", (X,), (Y,), max_batch_size=8)
ROWS = floats([1, 2, 3], [-1, 0, 4])


class TwoInOneOut(torch.nn.Module):  # type: ignore[misc]
    def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return one - 2 * other


class Named(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"double": x * 2, "half": x / 2}


def script(module: torch.nn.Module, folder: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(module.eval()).save(str(folder / "model.pt"))
    return folder


def load(config: ModelConfig, folder: Path) -> Model:
    return load_model(backend("torch"), config, folder, Device(threads=1)).model


def pair(first: str, second: str) -> ModelConfig:
    specs = (TensorSpec(first, "FP32", (1,)), TensorSpec(second, "FP32", (1,)))
    return ModelConfig("model", "torch", specs, (TensorSpec("OUTPUT__0", "FP32", (1,)),), max_batch_size=4)


@pytest.fixture
def linear(tmp_path: Path) -> torch.nn.Linear:
    """The module of `SOURCE`; its file exists, its weights do not."""
    write(tmp_path, SOURCE)
    torch.manual_seed(1)
    return torch.nn.Linear(3, 2)


def state(linear: torch.nn.Linear) -> dict[str, torch.Tensor]:
    return {f"linear.{name}": weight.detach() for name, weight in linear.state_dict().items()}


def expected(linear: torch.nn.Linear, rows: Array = ROWS) -> Array:
    answer: Array = linear(torch.from_numpy(rows)).detach().numpy()
    return answer


async def test_torchscript_answers_as_the_module_does(tmp_path: Path, linear: torch.nn.Linear) -> None:
    config = await placement.complete(LINEAR, script(linear, tmp_path))
    async with running(config, tmp_path) as instance:
        assert instance.report.pid == 0
        got = await outputs(instance, {"x": ROWS[:1]}, {"x": ROWS[1:]})
        np.testing.assert_allclose(got["y"], expected(linear), rtol=1e-5)


@pytest.mark.processes
async def test_a_plain_module_takes_its_weights_from_safetensors_in_a_process(
    tmp_path: Path, linear: torch.nn.Linear
) -> None:
    save_file(state(linear), str(tmp_path / "model.safetensors"))
    config = ModelConfig("model", "torch", (X,), (Y,), 8, default_model_filename="model.safetensors")
    async with running(await placement.complete(config, tmp_path), tmp_path) as instance:
        assert instance.report.pid > 0
        got = await outputs(instance, {"x": ROWS})
        np.testing.assert_allclose(got["y"], expected(linear), rtol=1e-5)


def test_or_from_a_state_dict(tmp_path: Path, linear: torch.nn.Linear) -> None:
    torch.save(state(linear), tmp_path / "model.pth")
    np.testing.assert_allclose(load(LINEAR, tmp_path).infer({"x": ROWS})["y"], expected(linear), rtol=1e-5)


def test_an_exported_program_declares_its_shapes(tmp_path: Path, linear: torch.nn.Linear) -> None:
    batch = torch.export.Dim("batch")
    program = torch.export.export(linear, (torch.zeros(2, 3),), dynamic_shapes=({0: batch},))
    torch.export.save(program, tmp_path / "model.pt2")
    config = complete_config(backend("torch"), ModelConfig("model", "torch"), tmp_path)
    [x], [y] = config.inputs, config.outputs
    assert (x.datatype, x.dims, y.datatype, y.dims) == ("FP32", (3,), "FP32", (2,))
    assert config.max_batch_size == 8
    got = load(config, tmp_path).infer({x.name: ROWS})
    np.testing.assert_allclose(got[y.name], expected(linear), rtol=1e-5)


def test_an_exported_program_with_names(tmp_path: Path) -> None:
    batch = torch.export.Dim("batch")
    program = torch.export.export(Named(), (), {"x": torch.zeros(2, 3)}, dynamic_shapes={"x": {0: batch}})
    torch.export.save(program, tmp_path / "model.pt2")
    config = complete_config(backend("torch"), ModelConfig("model", "torch"), tmp_path)
    assert [spec.name for spec in (*config.inputs, *config.outputs)] == ["x", "double", "half"]
    got = load(config, tmp_path).infer({"x": ROWS})
    np.testing.assert_array_equal(got["half"], ROWS / 2)


@pytest.mark.parametrize("names", [("one", "other"), ("INPUT__0", "INPUT__1"), ("a", "b")])
def test_inputs_reach_forward_by_name_by_number_or_in_order(tmp_path: Path, names: tuple[str, str]) -> None:
    model = load(pair(*names), script(TwoInOneOut(), tmp_path))
    got = model.infer({names[1]: floats([1]), names[0]: floats([5])})
    assert got["OUTPUT__0"].tolist() == [[3]]


def test_inputs_that_are_written_the_other_way_round_keep_their_names(tmp_path: Path) -> None:
    for names in (("other", "one"), ("INPUT__1", "INPUT__0")):
        got = load(pair(*names), script(TwoInOneOut(), tmp_path)).infer({names[0]: floats([1]), names[1]: floats([5])})
        assert got["OUTPUT__0"].tolist() == [[3]]


def test_a_dict_of_outputs_goes_by_name(tmp_path: Path) -> None:
    specs = (TensorSpec("half", "FP32", (3,)), TensorSpec("double", "FP32", (3,)))
    got = load(ModelConfig("model", "torch", (X,), specs, 8), script(Named(), tmp_path)).infer({"x": ROWS})
    np.testing.assert_array_equal(got["double"], ROWS * 2)
    np.testing.assert_array_equal(got["half"], ROWS / 2)


@pytest.mark.parametrize("datatype", sorted(set(DTYPES) - {"BYTES"}))
def test_every_datatype_passes_through(tmp_path: Path, datatype: str) -> None:
    specs = (TensorSpec("x", datatype, (3,)),), (TensorSpec("y", datatype, (3,)),)
    model = load(ModelConfig("model", "torch", *specs, 8), script(torch.nn.Identity(), tmp_path))
    x = np.array([[0, 1, 1]]).astype(DTYPES[datatype])
    x.flags.writeable = False
    got = model.infer({"x": x})["y"]
    assert got.dtype == DTYPES[datatype]
    np.testing.assert_array_equal(got, x)


def test_bf16_is_the_number_that_it_stands_for() -> None:
    numbers = np.array([1, -2.5, 3.14159, 1e38, np.inf, 0, np.nan], np.float32)
    ours = bf16_to_fp32(fp32_to_bf16(numbers))
    np.testing.assert_array_equal(ours, torch.from_numpy(numbers).bfloat16().float().numpy())


@pytest.mark.parametrize(
    ("module", "config", "message"),
    [
        (TwoInOneOut(), LINEAR, r"takes 2 inputs \(one, other\), not 1"),
        (torch.nn.Identity(), pair("a", "b"), r"takes 1 inputs \(input\), not 2"),
    ],
)
def test_inputs_that_forward_has_no_place_for(
    tmp_path: Path, module: torch.nn.Module, config: ModelConfig, message: str
) -> None:
    with pytest.raises(ModelLoadError, match=message):
        load(config, script(module, tmp_path))


def test_the_error_of_an_unusable_model_names_the_change(tmp_path: Path, linear: torch.nn.Linear) -> None:
    def refused(message: str, config: ModelConfig = LINEAR) -> None:
        with pytest.raises(ModelLoadError, match=message):
            load(complete_config(backend("torch"), config, tmp_path), tmp_path)

    refused("there is no model.pt or model.pt2 or model.safetensors or model.pth")
    torch.save(linear, tmp_path / "model.pth")
    refused("nothing else is unpickled: save `module.state_dict")
    torch.save([1], tmp_path / "model.pth")
    refused("it holds a list")
    torch.save({"linear.weight": torch.zeros(9)}, tmp_path / "model.pth")
    refused("does not fit class `Model`")
    refused("describe its inputs and outputs", ModelConfig("model", "torch"))
    refused("no BYTES tensors", ModelConfig("model", "torch", (TensorSpec("x", "BYTES", (1,)),), (Y,)))
    write(tmp_path, "class Model: ...")
    refused("is no torch.nn.Module")
    (tmp_path / "model.pt2").write_bytes(b"no archive")
    refused(".")


@pytest.mark.parametrize(
    ("answer", "message"), [("[1]", "output `y` is a int, not a tensor"), ("None", "returned a NoneType")]
)
def test_an_answer_that_is_no_tensor(tmp_path: Path, answer: str, message: str) -> None:
    source = f"import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return {answer}"
    write(tmp_path, source)
    torch.save({}, tmp_path / "model.pth")
    with pytest.raises(ModelFailed, match=message):
        load(LINEAR, tmp_path).infer({"x": ROWS})


def test_a_module_by_import_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linear: torch.nn.Linear) -> None:
    write(tmp_path, SOURCE.replace("Model", "Straight"), "straight_line.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    torch.save(state(linear), tmp_path / "model.pth")
    parameters: dict[str, Any] = {"class": "straight_line:Straight"}
    config = ModelConfig("model", "torch", (X,), (Y,), 8, parameters=parameters)
    np.testing.assert_allclose(load(config, tmp_path).infer({"x": ROWS})["y"], expected(linear), rtol=1e-5)


async def test_a_declared_model_needs_no_framework_to_be_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "complete_in_process", None)
    monkeypatch.setattr(placement, "complete_config", None)
    for name in ("model.pt", "model.safetensors"):
        (tmp_path / name).touch()
        config = ModelConfig("model", "torch", (X,), (Y,), 8, default_model_filename=name)
        assert await placement.complete(config, tmp_path) == config


# ── trees of arguments and results ────────────────────────────────────────────────────────────────────────


class Optional(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: torch.Tensor, mask: torch.Tensor | None, y: torch.Tensor, times: int) -> torch.Tensor:
        return x * times - y


class OfDict(torch.nn.Module):  # type: ignore[misc]
    def forward(self, batch: dict[str, Any]) -> torch.Tensor:
        return batch["b"][0] - 2 * batch["a"]


class Results(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: torch.Tensor) -> Any:
        if self.kind == "none":
            return x + 1, None, x * 100
        if self.kind == "nested":
            return x + 1, (x * 10, x * 100)
        if self.kind == "twice":
            return {"a": x * 2, "b": (x * 3, x * 4)}
        return {"first": x + 1, "more": {"second": x * 100}}


def exported(folder: Path, module: torch.nn.Module, *arguments: Any, rows: Any = None) -> Path:
    """A program with rows of any number; `rows` bounds them."""
    lengths = torch.export.Dim("rows", max=rows) if rows else torch.export.Dim.AUTO
    shapes = torch.utils._pytree.tree_map(lambda one: {0: lengths} if hasattr(one, "shape") else None, arguments)
    program = torch.export.export(module, arguments, dynamic_shapes=shapes, strict=False)
    torch.export.save(program, folder / "model.pt2")
    return folder


def completed(folder: Path) -> ModelConfig:
    return complete_config(backend("torch"), ModelConfig("model", "torch"), folder)


def test_arguments_that_are_constant_and_those_within_others(tmp_path: Path) -> None:
    config = completed(exported(tmp_path, Optional(), torch.zeros(4, 1), None, torch.zeros(4, 1), 3))
    assert [spec.name for spec in config.inputs] == ["x", "y"]
    assert load(config, tmp_path).infer({"x": floats([2]), "y": floats([1])})["sub"].tolist() == [[5]]
    config = completed(exported(tmp_path, OfDict(), {"a": torch.zeros(4, 1), "b": (torch.zeros(4, 1),)}))
    one, other = (spec.name for spec in config.inputs)
    (answer,) = load(config, tmp_path).infer({one: floats([1]), other: floats([7])}).values()
    assert answer.tolist() == [[5]]


@pytest.mark.parametrize(
    ("kind", "right"),
    [
        ("none", {"add": 3, "mul": 200}),
        ("nested", {"add": 3, "mul": 20, "mul_1": 200}),
        ("dict", {"first": 3, "more.second": 200}),
        ("twice", {"a": 4, "b.0": 6, "b.1": 8}),
    ],
)
def test_results_are_trees(kind: str, right: dict[str, float], tmp_path: Path) -> None:
    config = completed(exported(tmp_path, Results(kind), torch.zeros(4, 1)))
    answers = load(config, tmp_path).infer({"x": floats([2])})
    assert {name: answer.item() for name, answer in answers.items()} == right


def test_the_bound_of_rows_is_that_of_the_batch(tmp_path: Path) -> None:
    assert completed(exported(tmp_path, Results("none"), torch.zeros(2, 1), rows=4)).max_batch_size == 4
    with pytest.raises(ModelLoadError, match="`max_batch_size` is 8, and `x` in the model has 4 at most"):
        complete_config(backend("torch"), ModelConfig("model", "torch", max_batch_size=8), tmp_path)


async def test_many_exported_models_load_at_once(tmp_path: Path) -> None:
    """The library's loader has state of the whole process."""
    folders = [tmp_path / str(i) for i in range(6)]
    for folder in folders:
        folder.mkdir()
        exported(folder, Results("none"), torch.zeros(2, 1))
    await asyncio.gather(*[placement.complete(ModelConfig("model", "torch"), folder) for folder in folders])


@pytest.mark.parametrize(
    ("names", "right"),
    [
        (["OUTPUT__0", "OUTPUT__1"], [3.0, 200.0]),
        (["OUTPUT__1"], [200.0]),
        (["OUTPUT__1", "OUTPUT__0"], [200.0, 3.0]),
        (["scores__1", "boxes__0"], [200.0, 3.0]),
        (["second", "first"], [3.0, 200.0]),
    ],
)
def test_outputs_of_a_tuple_are_counted_by_their_names(names: list[str], right: list[float], tmp_path: Path) -> None:
    class Pair(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x + 1, x * 100

    outputs = tuple(TensorSpec(name, "FP32", (1,)) for name in names)
    config = ModelConfig("model", "torch", (TensorSpec("x", "FP32", (1,)),), outputs, max_batch_size=4)
    answers = load(config, script(Pair(), tmp_path)).infer({"x": floats([2])})
    assert [answers[name].item() for name in names] == right


def test_a_model_may_differentiate(tmp_path: Path) -> None:
    class Slope(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            point = x.clone().requires_grad_(True)
            slopes = torch.autograd.grad([(point * point).sum()], [point])
            slope = slopes[0]
            assert slope is not None
            return slope

    config = ModelConfig("model", "torch", (TensorSpec("x", "FP32", (1,)),), (TensorSpec("y", "FP32", (1,)),))
    config = replace(config, parameters={"INFERENCE_MODE": "false"})
    assert load(config, script(Slope(), tmp_path)).infer({"x": floats([3])})["y"].tolist() == [[6]]


def test_packages_of_operators_are_imported_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "operators_of_mine.py").write_text("import pathlib; pathlib.Path(__file__).with_name('seen').touch()")
    monkeypatch.syspath_prepend(str(tmp_path))
    written = replace(LINEAR, parameters={"import": "operators_of_mine"})
    load(written, script(torch.nn.Linear(3, 2), tmp_path))
    assert (tmp_path / "seen").exists()
    with pytest.raises(ModelLoadError, match="`import` names nothing_like_it, which cannot be imported"):
        load(replace(LINEAR, parameters={"import": "nothing_like_it"}), tmp_path)
