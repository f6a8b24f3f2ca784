"""Integrated gradients of models of PyTorch: those of Captum run alone."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.errors import CallerError
from adapters.tensors import Inference, Tensor
from runtimes.tensor.explanations.explanation import Attributions, tensors_of
from runtimes.tensor.interfaces import Array, ModelLoadError
from tests.runtimes.tensor import loaded
from tests.support.absent import absent

try:
    from captum.attr import IntegratedGradients
except ModuleNotFoundError as error:
    absent(error)

YAML = (
    "backend: torch\nmax_batch_size: 8\ninputs: [{name: x, datatype: FP32, dims: [4]}]\n"
    "outputs: [{name: y, datatype: FP32, dims: [3]}]\n"
)
X = np.random.default_rng(3).normal(size=(6, 4)).astype(np.float32)


def network(seed: int = 0, activation: Any = torch.nn.Tanh) -> Any:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), activation(), torch.nn.Linear(8, 3)).eval()


def a_model(root: Path, module: Any, explain: str, kind: str = "script") -> Path:
    folder = root / "m"
    (folder / "1").mkdir(parents=True)
    if kind == "script":
        torch.jit.trace(module, torch.zeros(1, 4)).save(str(folder / "1" / "model.pt"))
    else:
        rows = torch.export.Dim("batch", min=1, max=8)
        program = torch.export.export(module, (torch.zeros(2, 4),), dynamic_shapes=[{0: rows}])
        torch.export.save(program, folder / "1" / "model.pt2")
    yaml = YAML if kind == "script" else "backend: torch\n"
    (folder / "model.yaml").write_text(f"{yaml}explain: {explain}\n")
    np.save(folder / "behind.npy", X[:3])
    return folder


async def explained(folder: Path, rows: Array, name: str = "x") -> tuple[Attributions, list[Tensor]]:
    model = await loaded.load(folder)
    try:
        assert model.explainer is not None
        tensor = Tensor(name, "FP32", rows.shape, np.ascontiguousarray(rows).tobytes())
        deadline = asyncio.get_running_loop().time() + 300
        got = await model.explainer.explain(Inference("m", inputs=[tensor]), deadline)
        return got, tensors_of(got, model.config, None)
    finally:
        await model.aclose()


def alone(module: Any, rows: Array, targets: Array) -> Array:
    parts = IntegratedGradients(module).attribute(torch.from_numpy(rows), target=torch.from_numpy(targets), n_steps=50)
    array: Array = parts.detach().numpy()
    return array


@pytest.mark.filterwarnings("ignore")  # TorchScript is deprecated
@pytest.mark.parametrize("method", ["auto", "gradients"])
async def test_a_network_has_the_gradients_of_captum(tmp_path: Path, method: str) -> None:
    module = network()
    got, tensors = await explained(a_model(tmp_path, module, f"{{method: {method}}}"), X)
    answers = module(torch.from_numpy(X)).detach().numpy()
    assert got.targets is not None
    np.testing.assert_array_equal(got.targets, answers.argmax(axis=1))
    np.testing.assert_allclose(got.values[:, 0], alone(module, X, got.targets), atol=1e-5)
    np.testing.assert_allclose(got.output[:, 0], answers.max(axis=1), atol=1e-5)
    np.testing.assert_allclose(got.base[:, 0], module(torch.zeros(1, 4))[0].detach().numpy()[got.targets], atol=1e-5)
    assert (got.method, got.explained, got.model_rows, bool(got.error.max() < 1e-3)) == ("gradients", "y", 300, True)
    assert [(tensor.name, tensor.shape) for tensor in tensors] == [
        ("values", (6, 4)), ("base", (6,)), ("output", (6,)), ("error", (6,)), ("target", (6,)),
    ]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
async def test_an_exported_program_has_the_gradients_of_captum(tmp_path: Path) -> None:
    module = network(1)
    folder = a_model(tmp_path, module, "{method: gradients}", "exported")
    got, _ = await explained(folder, X, "input")
    assert got.targets is not None
    np.testing.assert_allclose(got.values[:, 0], alone(module, X, got.targets), atol=1e-5)


@pytest.mark.filterwarnings("ignore")
async def test_requests_are_refused_that_gradients_cannot_answer(tmp_path: Path) -> None:
    folder = a_model(tmp_path, network(), "{method: gradients, budget: 100}")
    with pytest.raises(CallerError, match="3 rows needs 150 rows of the model, and the budget is 100"):
        await explained(folder, X[:3])


class Rounded(torch.nn.Module):  # type: ignore[misc]
    """Has no gradient."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.detach()[:, :3].round()


@pytest.mark.filterwarnings("ignore")
async def test_a_network_without_gradients_is_explained_by_mixtures_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="explain: the model has no gradients"):
        await explained(a_model(tmp_path / "a", Rounded(), "{method: gradients}"), X)
    got, _ = await explained(a_model(tmp_path / "b", Rounded(), "{background: behind.npy}"), X)
    assert got.method == "exact"
    with pytest.raises(ModelLoadError, match="the backend `torch` has no `method: tree`"):
        await explained(a_model(tmp_path / "c", Rounded(), "{method: tree}"), X)


@given(st.integers(0, 2**16), st.integers(1, 9))
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.filterwarnings("ignore")
def test_gradients_of_random_networks_add_up(tmp_path_factory: pytest.TempPathFactory, seed: int, rows: int) -> None:
    module = network(seed, torch.nn.GELU)
    table = np.random.default_rng(seed).normal(size=(rows, 4)).astype(np.float32)
    got, _ = asyncio.run(explained(a_model(tmp_path_factory.mktemp("net"), module, "{method: gradients}"), table))
    expected = module(torch.from_numpy(table)).detach().numpy().max(axis=1)
    np.testing.assert_allclose((got.base + got.values.sum(axis=2))[:, 0], expected, atol=1e-3)
