"""Models that were completed from their files: whether their first dimension is the batch, and whether they answer."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx.onnx_ml_pb2 import NodeProto

from runtimes.tensor.interfaces import ModelLoadError
from runtimes.tensor.models.served_model import ServedModel
from tests.runtimes.tensor.backends.onnx_models import save
from tests.runtimes.tensor.loaded import answers, end, load

WIDTH = 3


def graph(folder: Path, nodes: Sequence[NodeProto], first: str | int = "d0", width: int | str = WIDTH) -> Path:
    """`x` [first, width] → `y` [first, …], in version 1 of a folder."""
    shape = [first, width]
    save(folder / "1", nodes, [("x", TensorProto.FLOAT, shape)], [("y", TensorProto.FLOAT, [first, None])])
    return folder


async def answers_of(served: ServedModel, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [one["y"] for one in await answers(served, [{"x": each} for each in rows])]


OVER_TIME: dict[str, Callable[[], list[NodeProto]]] = {
    "softmax over the first dimension": lambda: [helper.make_node("Softmax", ["x"], ["y"], axis=0)],
    "sum up to here": lambda: [
        helper.make_node("Constant", [], ["axis"], value_int=0),
        helper.make_node("CumSum", ["x", "axis"], ["y"]),
    ],
    "centred": lambda: [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[0]),
        helper.make_node("Sub", ["x", "mean"], ["y"]),
    ],
}
OF_A_ROW: dict[str, Callable[[], list[NodeProto]]] = {
    "softmax over the second": lambda: [helper.make_node("Softmax", ["x"], ["y"], axis=1)],
    "doubled": lambda: [helper.make_node("Add", ["x", "x"], ["y"])],
}


@pytest.mark.parametrize("kind", OVER_TIME)
async def test_callers_are_not_joined_along_another_dimension_than_the_batch(kind: str, tmp_path: Path) -> None:
    """Each answer depends on all steps of one request: together with others it would be another."""
    served = await load(graph(tmp_path / "m", OVER_TIME[kind]()))
    assert (served.config.max_batch_size, served.config.inputs[0].dims) == (0, (-1, WIDTH))
    rows = [np.random.default_rng(i).normal(size=(n, WIDTH)).astype(np.float32) for i, n in enumerate([3] * 8 + [16])]
    for one, got in zip(rows, await answers_of(served, rows), strict=True):
        np.testing.assert_allclose(got, (await answers_of(served, [one]))[0])
        assert got.shape == one.shape
    await end(served)


async def test_inputs_of_one_shape_have_different_data_in_the_probe(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Sub", ["a", "b"], ["d"]),
        helper.make_node("Constant", [], ["axis"], value_int=0),
        helper.make_node("CumSum", ["d", "axis"], ["y"]),
    ]
    shape: list[Any] = ["d0", WIDTH]
    inputs: list[Any] = [(name, TensorProto.FLOAT, shape) for name in ("a", "b")]
    save(tmp_path / "m" / "1", nodes, inputs, [("y", TensorProto.FLOAT, shape)])
    served = await load(tmp_path / "m")
    assert served.config.max_batch_size == 0
    await end(served)


@pytest.mark.parametrize("kind", OF_A_ROW)
async def test_independent_rows_are_joined(kind: str, tmp_path: Path) -> None:
    served = await load(graph(tmp_path / "m", OF_A_ROW[kind]()))
    assert (served.config.max_batch_size, served.config.inputs[0].dims) == (8, (WIDTH,))
    await end(served)


async def test_a_dimension_that_is_named_as_the_batch_is_the_batch(tmp_path: Path) -> None:
    served = await load(graph(tmp_path / "m", OVER_TIME["centred"](), first="batch_size"))
    assert served.config.max_batch_size == 8
    await end(served)


@pytest.mark.parametrize(
    "written",
    [
        {"model.yaml": "max_batch_size: 0\n"},
        {"config.pbtxt": "max_batch_size: 0\n"},
        {"json": '{"backend": "onnxruntime", "max_batch_size": 0}'},
        {"json": '{"backend": "onnxruntime", "maxBatchSize": 0}'},
    ],
)
async def test_a_size_of_zero_is_obeyed(written: dict[str, str], tmp_path: Path) -> None:
    folder = graph(tmp_path / "m", OF_A_ROW["doubled"](), first="batch")
    for name, text in written.items():
        if name != "json":
            (folder / name).write_text(text)
    served = await load(folder, written.get("json"))
    assert (served.config.max_batch_size, served.config.inputs[0].dims) == (0, (-1, WIDTH))
    await end(served)


@settings(max_examples=20)
@given(
    kinds=st.lists(st.sampled_from(["Relu", "Neg", "Abs", "Sigmoid", "softmax", "centre", "normalise"]), max_size=5),
    width=st.integers(1, 5),
)
async def test_no_graph_mixes_the_rows_of_callers(
    kinds: list[str], width: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever the layers: the answers of requests at once are those of the same requests alone."""
    nodes = [helper.make_node("Identity", ["x"], ["h0"])]
    for i, kind in enumerate(kinds):
        here, there = f"h{i}", f"h{i + 1}"
        if kind == "softmax":
            nodes.append(helper.make_node("Softmax", [here], [there], axis=i % 2))
        elif kind in ("centre", "normalise"):
            axis = [0] if kind == "centre" else [1]
            nodes.append(helper.make_node("ReduceMean", [here], [f"mean{i}"], axes=axis))
            nodes.append(helper.make_node("Sub", [here, f"mean{i}"], [there]))
        else:
            nodes.append(helper.make_node(kind, [here], [there]))
    nodes.append(helper.make_node("Identity", [f"h{len(kinds)}"], ["y"]))
    served = await load(graph(tmp_path_factory.mktemp("graph") / "m", nodes, width=width))
    rows = [np.random.default_rng(i).normal(size=(1 + i % 3, width)).astype(np.float32) for i in range(6)]
    together = await answers_of(served, rows)
    for one, got in zip(rows, together, strict=True):
        np.testing.assert_allclose(got, (await answers_of(served, [one]))[0], rtol=1e-5, atol=1e-6)
    await end(served)


def reshaping(folder: Path) -> Path:
    """A graph whose file promises three features, and which takes four numbers."""
    shape = np.array([2, 2], np.int64)
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    inputs: list[Any] = [("x", TensorProto.FLOAT, [1, WIDTH])]
    save(folder / "1", nodes, inputs, [("y", TensorProto.FLOAT, [2, None])], {"shape": shape})
    return folder


async def test_a_model_that_cannot_answer_its_own_schema_is_not_ready(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"cannot answer a request that its own file describes.*probe: false"):
        await load(reshaping(tmp_path / "m"))


async def test_the_probe_can_be_left_out(tmp_path: Path) -> None:
    folder = reshaping(tmp_path / "m")
    (folder / "model.yaml").write_text("parameters: {probe: false}\n")
    await end(await load(folder))
