"""The tensors of the model `add_sub` of many servers: two rows of sixteen, their sum and their difference."""

from typing import Any

from adapters.tensors import Tensor

ONES = (1).to_bytes(4, "little") * 16
TWOS = (2).to_bytes(4, "little") * 16
ADD_SUB = [Tensor(name, "INT32", (1, 16), ONES) for name in ("INPUT0", "INPUT1")]
OF_ANOTHER_TYPE = [Tensor(one.name, "FP32", one.shape, ONES) for one in ADD_SUB]
SUMS = {"OUTPUT0": TWOS, "OUTPUT1": bytes(64)}
"""The outputs for `ADD_SUB`, by name."""
DESCRIBED: list[dict[str, Any]] = [{"name": f"INPUT{i}", "datatype": "INT32", "shape": [-1, 16]} for i in (0, 1)]
"""The inputs in the metadata of the model."""
ROWS = b"".join(number.to_bytes(8, "little") for number in (1, 2, 3, 4))
THREE_AND_SEVEN = (3).to_bytes(8, "little") + (7).to_bytes(8, "little")
X = Tensor("x", "INT64", (2, 2), ROWS)
"""The input of models that sum each row of two numbers."""
SUM_OF_X: dict[str, Any] = {
    "inputs": [{"name": "x", "datatype": "INT64", "shape": [-1, 2]}],
    "outputs": [{"name": "sum", "datatype": "INT64", "shape": [-1]}],
}
"""Such a model as a pool declares it."""
