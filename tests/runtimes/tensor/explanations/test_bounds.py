"""Limits of explanations: requests that are too large, that have optional inputs, or that no parts exist for."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pytest

from adapters.errors import BackendError, CallerError
from adapters.tensors import Inference, RequestedOutput, Tensor
from runtimes.tensor.configuration.model_config import ModelConfig, TensorSpec
from runtimes.tensor.explanations import exact, explanation, kernel, sampling
from runtimes.tensor.explanations.explanation import Attributions, check_selection, tensors_of
from runtimes.tensor.interfaces import Array, ModelLoadError
from tests.runtimes.tensor import loaded
from tests.runtimes.tensor.explaining import Summing, X, a_model, explained, request, served, summing


def far() -> float:
    return asyncio.get_running_loop().time() + 300


async def test_a_model_of_one_feature_is_exact_and_has_a_budget_too() -> None:
    explainer = summing(scheduler := Summing(99), width=1, budget=100)
    got = await explainer.explain(request(np.ones((100, 1))), far())
    assert (got.method, got.model_rows) == ("exact", 100)
    np.testing.assert_array_equal(got.values, np.ones((100, 1, 1)))
    calls = scheduler.calls
    with pytest.raises(CallerError, match="101 rows needs at least 101 rows of the model, and the budget is 100"):
        await explainer.explain(request(np.ones((101, 1))), far())
    assert scheduler.calls == calls


def hinted(rows: Array, hints: Array) -> Inference:
    """A request with the optional input."""
    return Inference("m", inputs=[*request(rows).inputs, Tensor("hint", "FP64", (len(hints), 1), hints.tobytes())])


@pytest.mark.parametrize(("width", "method"), [(1, "exact"), (3, "exact"), (13, "permutation")])
async def test_an_optional_input_is_in_the_base_too(width: int, method: str) -> None:
    rows, hints = np.arange(2.0 * width).reshape(2, width), np.array([3.0, -5.0])
    explainer = summing(Summing(999), width, behind=0.5)
    plain = await explainer.explain(request(rows), far())
    np.testing.assert_allclose(plain.values[:, 0], rows - 0.5)
    got = await explainer.explain(hinted(rows, hints), far())
    assert (got.method, got.model_rows) == (method, plain.model_rows + 2 * 4)
    np.testing.assert_allclose(got.values[:, 0], (rows - 0.5) * hints[:, None])
    np.testing.assert_allclose(got.base[:, 0], 0.5 * width * hints)


async def test_the_bases_of_optional_inputs_count_for_the_budget() -> None:
    explainer = summing(Summing(999), 1, budget=20)
    rows = np.ones((4, 1))
    assert (await explainer.explain(hinted(rows, np.ones(4)), far())).model_rows == 20
    with pytest.raises(CallerError, match="5 rows needs at least 25 rows of the model"):
        await explainer.explain(hinted(np.ones((5, 1)), np.ones(5)), far())


@pytest.mark.parametrize("dims", [(20,), (-1,)])
async def test_of_many_numbers_one_of_each_row_is_estimated(dims: tuple[int, ...]) -> None:
    scheduler = Summing(99)
    scheduler.outputs = 20
    rows = np.array([[1.0, 2.0], [-1.0, -2.0]])
    explainer = summing(scheduler, 2, dims=dims)
    got = await explainer.explain(request(rows), far())
    assert (got.values.shape, got.output.tolist()) == ((2, 1, 2), [[60], [-3]])
    np.testing.assert_allclose(got.values[:, 0], rows * [[20], [1]])
    assert [tensor.shape for tensor in tensors_of(got, ONE, None)] == [(2, 2), (2,), (2,), (2,), (2,)]
    got = await explainer.explain(request(rows, target=4), far())
    np.testing.assert_allclose(got.values[:, 0], rows * 5)
    assert np.frombuffer(tensors_of(got, ONE, 4)[-1].data, "<i8").tolist() == [4, 4]
    with pytest.raises(CallerError, match="from 0 to 19") as caught:
        await explainer.explain(request(rows, target=20), far())
    assert caught.value.device_ms == 250


async def test_an_answer_of_mixtures_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = Summing(999)
    scheduler.outputs = 3
    monkeypatch.setattr(explanation, "MAX_VALUES", 2 * 3 * 13)
    assert (await summing(scheduler, dims=(3,)).explain(request(np.ones((2, 13))), far())).values.size == 78
    calls = scheduler.calls
    with pytest.raises(CallerError, match=r"3 rows has 117 values.* and the most are 78: send fewer rows"):
        await summing(scheduler, dims=(3,)).explain(request(np.ones((3, 13))), far())
    assert scheduler.calls == calls
    assert (await summing(scheduler, dims=(3,)).explain(request(np.ones((3, 13)), target=1), far())).values.size == 39


@pytest.mark.parametrize("bad", [np.nan, np.inf])
async def test_a_row_without_a_finite_output_is_refused_by_name(bad: float) -> None:
    rows = np.ones((3, 2))
    rows[1, 0] = bad
    with pytest.raises(CallerError, match="The output `y` is not finite for row 1") as caught:
        await summing(Summing(99), 2).explain(request(rows), far())
    assert caught.value.device_ms == 250  # it is charged
    with pytest.raises(BackendError, match="not finite without the row's features"):
        await summing(Summing(99), 2, behind=bad).explain(request(np.ones((1, 2))), far())


def test_parts_that_are_not_finite_are_refused() -> None:
    made = Attributions(np.full((2, 1, 1), np.inf), np.zeros((2, 1)), np.zeros((2, 1)), "exact", "y", True)
    made.values[0] = 0
    with pytest.raises(CallerError, match="not finite for mixtures of row 1"):
        made.check()


async def test_an_answer_of_trees_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    classes = np.arange(80) % 3
    options = {"objective": "multiclass", "num_class": 3, "verbose": -1}
    booster = lightgbm.train(options, lightgbm.Dataset(X, classes), 2)
    folder = a_model(tmp_path, "explain: true\n", lambda folder: booster.save_model(folder / "model.txt"))
    monkeypatch.setattr(explanation, "MAX_VALUES", 4 * 3 * 5)
    async with served(folder) as model:
        assert model.explainer is not None
        assert await model.explainer.targets(far()) == 3
        assert (await explained(model, X[:4])).values.size == 60
        with pytest.raises(CallerError, match=r"5 rows has 75 values.* and the most are 60: send fewer rows"):
            await explained(model, X[:5])


async def test_trees_with_an_optional_input_are_explained_by_mixtures(tmp_path: Path) -> None:
    booster = lightgbm.train({"objective": "regression", "verbose": -1}, lightgbm.Dataset(X[:, :2], X[:, 0]), 2)
    one = "{name: %s, datatype: FP64, dims: [1]%s}"
    yaml = (
        f"backend: lightgbm\nmax_batch_size: 8\ninputs: [{one % ('a', '')}, {one % ('b', ', optional: true')}]\n"
        "outputs: [{name: predict, datatype: FP64, dims: [1], reshape: []}]\n"
    )

    def folder(explain: str) -> Path:
        rules = f"{yaml}explain: {explain}\n"
        made = a_model(tmp_path / str(len(explain)), rules, lambda at: booster.save_model(at / "model.txt"))
        np.save(made / "behind.npy", X[:3, :1])
        return made

    with pytest.raises(ModelLoadError, match="a part for every feature, and the input `b` is optional"):
        await loaded.load(folder("{method: tree}"))
    async with served(folder("{background: behind.npy}")) as model:
        assert model.explainer is not None
        assert model.explainer.method == "permutation"


async def test_loops_over_features_run_beside_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: dict[str, set[int]] = {}

    def observe(owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def observed(*arguments: Any) -> Any:
            threads.setdefault(name, set()).add(threading.get_ident())
            return function(*arguments)

        monkeypatch.setattr(owner, name, observed)

    for owner, name in ((sampling, "path"), (sampling, "path_values"), (Attributions, "check"), (exact, "numbers")):
        observe(owner, name)
    observe(kernel, "chosen")
    await summing(Summing(99)).explain(request(np.ones((1, 13))), far())
    await summing(Summing(9999), method="kernel").explain(request(np.ones((1, 13))), far())
    booster = lightgbm.train({"objective": "regression", "verbose": -1}, lightgbm.Dataset(X, X[:, 0]), 2)
    folder = a_model(tmp_path, "explain: true\n", lambda folder: booster.save_model(folder / "model.txt"))
    async with served(folder) as model:
        await explained(model, X[:4])
    assert threads.keys() == {"path", "path_values", "check", "numbers", "chosen"}
    assert threading.get_ident() not in set().union(*threads.values())


ONE = ModelConfig("m", inputs=(TensorSpec("x", "FP64", (2,)),))
TWO = ModelConfig("m", inputs=(TensorSpec("x", "FP64", (1,)), TensorSpec("z", "FP64", (1,))))


@pytest.mark.parametrize(
    ("config", "target", "targets", "outputs", "message"),
    [
        (ONE, 0, 0, [], "leave out `target`"),
        (ONE, 3, 3, [], "from 0 to 2"),
        (ONE, -1, 3, [], "from 0 to 2"),
        (ONE, None, 3, ["gain"], "no output `gain`. It has: values, base, output, error."),
        (ONE, None, 3, ["target"], "no output `target`"),
        (TWO, None, 3, ["values"], "It has: values.x, values.z, base"),
    ],
)
def test_a_target_or_an_output_that_cannot_be_there_is_refused(
    config: ModelConfig, target: int | None, targets: int, outputs: list[str], message: str
) -> None:
    selecting = Inference("m", outputs=[RequestedOutput(name) for name in outputs])
    with pytest.raises(CallerError, match=message):
        check_selection(selecting, config, target, targets)


@pytest.mark.parametrize(("target", "targets"), [(None, 0), (None, 1), (None, 3), (2, 3), (None, 17), (16, 17)])
def test_every_tensor_of_an_answer_may_be_requested(target: int | None, targets: int) -> None:
    count = max(1, targets)
    made = Attributions(np.zeros((2, count, 2)), np.zeros((2, count)), np.zeros((2, count)), "", "y", targets == 1)
    if not targets:
        made.targets = np.zeros(2, np.int64)
    names = [tensor.name for tensor in tensors_of(made, ONE, target)]
    check_selection(Inference("m", outputs=[RequestedOutput(name) for name in names]), ONE, target, targets)
