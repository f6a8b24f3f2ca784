"""Occlusion maps: those of Captum run alone, for images, tables and models of any backend."""

import asyncio
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import CallerError, DeadlineError
from adapters.tensors import Inference, Tensor
from runtimes.tensor.explanations import sampling
from runtimes.tensor.explanations.explanation import Attributions, tensors_of
from runtimes.tensor.interfaces import Array, ModelLoadError
from tests.runtimes.tensor import loaded
from tests.runtimes.tensor.explaining import BEHIND, Summing, X, a_model, explained, request, served, summing
from tests.support.absent import absent

PICTURES = np.random.default_rng(3).random(size=(2, 3, 7, 8)).astype(np.float32)
OF_PICTURES = (
    "backend: torch\nmax_batch_size: 8\ninputs: [{name: x, datatype: FP32, dims: [3, 7, 8]}]\n"
    "outputs: [{name: y, datatype: FP32, dims: [4]}]\n"
)


def far() -> float:
    return asyncio.get_running_loop().time() + 300


def pictured(root: Path, explain: str) -> tuple[Path, Any]:
    """A folder of a network of pictures, and the network."""
    try:
        import torch
    except ModuleNotFoundError as error:
        absent(error)
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.Tanh(), torch.nn.Flatten(), torch.nn.Linear(120, 4), torch.nn.Softmax(1)
    ).eval()
    folder = root / "m"
    (folder / "1").mkdir(parents=True)
    torch.jit.trace(network, torch.zeros(1, 3, 7, 8)).save(str(folder / "1" / "model.pt"))
    (folder / "model.yaml").write_text(f"{OF_PICTURES}explain: {explain}\n")
    return folder, network


async def mapped(folder: Path, **parameters: Any) -> tuple[Attributions, dict[str, Tensor]]:
    async with served(folder) as model:
        assert model.explainer is not None
        sent = Tensor("x", "FP32", PICTURES.shape, PICTURES.tobytes())
        got = await model.explainer.explain(Inference("m", inputs=[sent], parameters=parameters), far())
        return got, {tensor.name: tensor for tensor in tensors_of(got, model.config, parameters.get("target"))}


def array(tensor: Tensor) -> Array:
    return np.frombuffer(tensor.data, "<f8").reshape(tensor.shape)


@pytest.mark.filterwarnings("ignore")  # TorchScript is deprecated
@pytest.mark.parametrize(("patch", "baseline"), [((3, 3, 4), 0.5), ((1, 2, 3), 0.0)])
async def test_a_map_is_that_of_captum(tmp_path: Path, patch: tuple[int, ...], baseline: float) -> None:
    rules = f"{{method: occlusion, patch: {list(patch)}, baseline: {baseline}}}"
    folder, network = pictured(tmp_path, rules)
    try:
        from captum.attr import Occlusion
    except ModuleNotFoundError as error:
        absent(error)
    import torch

    got, tensors = await mapped(folder, target=2)
    occlusion: Any = Occlusion(network)
    alone = occlusion.attribute(
        torch.from_numpy(PICTURES), sliding_window_shapes=patch, strides=patch, baselines=baseline, target=2
    )
    whole = array(tensors["values"])
    assert whole.shape == PICTURES.shape
    sizes = np.bincount(numbers := sampling.patches((3, 7, 8), patch))[numbers].reshape(3, 7, 8)
    np.testing.assert_allclose(whole * sizes, alone.detach().numpy(), atol=1e-6)
    answers = network(torch.from_numpy(PICTURES)).detach().numpy()[:, 2]
    covered = network(torch.full((1, 3, 7, 8), baseline)).detach().numpy()[0, 2]
    np.testing.assert_allclose(array(tensors["output"]), answers, atol=1e-6)
    np.testing.assert_allclose(array(tensors["base"]), covered, atol=1e-6)
    gap = np.abs(covered + whole.sum(axis=(1, 2, 3)) - answers)
    np.testing.assert_allclose(array(tensors["error"]), gap, atol=1e-6)
    assert (got.method, got.model_rows) == ("occlusion", 2 + 2 * (numbers.max() + 1))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", ["permutation", "kernel"])
async def test_patches_have_shapley_values_too(tmp_path: Path, method: str) -> None:
    rules = f"{{method: {method}, patch: [3, 4, 4], baseline: 0}}"
    got, tensors = await mapped(pictured(tmp_path, rules)[0])
    assert got.method == "exact"
    assert tensors["values"].shape == (2, 4, 3, 7, 8)
    assert got.error.max() < 1e-9
    corner = array(tensors["values"])[:, :, :, :4, :4].reshape(2, 4, -1)
    np.testing.assert_allclose(corner, corner[:, :, :1].repeat(48, axis=2))


async def test_columns_of_a_table_are_covered_one_by_one_by_the_background(tmp_path: Path) -> None:
    booster = lightgbm.train({"objective": "regression", "verbose": -1}, lightgbm.Dataset(X, X[:, 0] * X[:, 1]), 9)
    yaml = "explain: {method: occlusion, background: behind.npy}\n"
    folder = a_model(tmp_path, yaml, lambda folder: booster.save_model(folder / "model.txt"))
    async with served(folder) as model:
        got = await explained(model, X[40:43])
    for at in range(5):
        covered = np.repeat(X[40:43, None], len(BEHIND), axis=1)
        covered[:, :, at] = BEHIND[:, at]
        means = booster.predict(covered.reshape(-1, 5)).reshape(3, -1).mean(axis=1)
        np.testing.assert_allclose(got.values[:, 0, at], booster.predict(X[40:43]) - means, atol=1e-9)
    np.testing.assert_allclose(got.base[:, 0], booster.predict(BEHIND).mean())
    assert got.model_rows == 3 + 3 * 5 * len(BEHIND)


async def test_half_a_map_is_no_answer() -> None:
    rows = np.arange(300.0)[None]
    whole = await summing(Summing(999), 300, method="occlusion").explain(request(rows), far())
    np.testing.assert_allclose(whole.values[:, 0], rows)
    with pytest.raises(DeadlineError):
        await summing(Summing(9, DeadlineError), 300, method="occlusion").explain(request(rows), far())
    with pytest.raises(CallerError, match="1 rows needs at least 1201 rows of the model, and the budget is 1200"):
        await summing(Summing(9), 300, budget=1200, method="occlusion").explain(request(rows), far())


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=3))
def test_patches_divide_a_shape(lengths: list[tuple[int, int]]) -> None:
    dims, patch = zip(*lengths, strict=True)
    places = sampling.patches(dims, patch).reshape(dims)
    assert sorted(set(places.ravel().tolist())) == list(range(places.max() + 1))
    for corner in np.ndindex(*(-(-dim // length) for dim, length in lengths)):
        window = places[tuple(slice(at * size, (at + 1) * size) for at, size in zip(corner, patch, strict=True))]
        assert len(np.unique(window)) == 1


@pytest.mark.parametrize(
    ("explain", "message"),
    [
        ("{method: occlusion, patch: [2, 2]}", "`patch` has 2 lengths: it needs one input of as many dimensions"),
        ("{method: gradients}", "has no `method: gradients`: use `occlusion`, which every backend has"),
        ("{method: permutation}", "Or write a number for all absent features as `baseline`"),
    ],
)
async def test_rules_that_do_not_fit_the_model_are_refused(tmp_path: Path, explain: str, message: str) -> None:
    booster = lightgbm.train({"objective": "regression", "verbose": -1}, lightgbm.Dataset(X, X[:, 0]), 2)
    folder = a_model(tmp_path, f"explain: {explain}\n", lambda folder: booster.save_model(folder / "model.txt"))
    with pytest.raises(ModelLoadError, match=message):
        await loaded.load(folder)
