"""Small ONNX graphs, made by the tests that run them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper, save_model
from onnx.onnx_ml_pb2 import NodeProto

Value = tuple[str, int, Sequence[int | str | None]]
ELEMENTS = {
    "BOOL": TensorProto.BOOL,
    "UINT8": TensorProto.UINT8,
    "UINT16": TensorProto.UINT16,
    "UINT32": TensorProto.UINT32,
    "UINT64": TensorProto.UINT64,
    "INT8": TensorProto.INT8,
    "INT16": TensorProto.INT16,
    "INT32": TensorProto.INT32,
    "INT64": TensorProto.INT64,
    "FP16": TensorProto.FLOAT16,
    "FP32": TensorProto.FLOAT,
    "FP64": TensorProto.DOUBLE,
    "BF16": TensorProto.BFLOAT16,
}


def save(
    folder: Path,
    nodes: Sequence[NodeProto],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    weights: dict[str, np.ndarray] | None = None,
) -> Path:
    """`1.onnx`'s usual name in the folder, which is returned."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(*one) for one in inputs],
        [helper.make_tensor_value_info(*one) for one in outputs],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    checker.check_model(model)
    folder.mkdir(parents=True, exist_ok=True)
    save_model(model, str(folder / "model.onnx"))
    return folder


def linear(folder: Path, width: int = 64, *, rows: int | str | None = "batch") -> Path:
    """`x` [rows, width] → `y` [rows, 4], by two matrices."""
    rng = np.random.default_rng(1)
    weights = {
        "a": rng.normal(size=(width, width)).astype(np.float32),
        "b": rng.normal(size=(width, 4)).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "b"], ["y"]),
    ]
    float32 = TensorProto.FLOAT
    return save(folder, nodes, [("x", float32, [rows, width])], [("y", float32, [rows, 4])], weights)


def identity(folder: Path, element: int, shape: Sequence[int | str | None] = ("batch", 3)) -> Path:
    return save(folder, [helper.make_node("Identity", ["x"], ["y"])], [("x", element, shape)], [("y", element, shape)])
