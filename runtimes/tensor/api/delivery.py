"""Delivers outputs in shared memory, or as the classes with the highest values, as the request selects."""

from __future__ import annotations

import numpy as np

from adapters import offload
from adapters.errors import CallerError
from adapters.tensors import CLASSES, ITEM_SIZE, SHARED_MEMORY, Inference, Parameters, Tensor, join_bytes
from runtimes.tensor.api.shared_memory import SharedMemory
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.datatypes import DTYPES, bf16_to_fp32
from runtimes.tensor.interfaces import Array


def requested_classes(parameters: Parameters, name: str) -> int:
    """The number of classes that a request requires, 0 for none. Raises `CallerError`."""
    count = parameters.get(CLASSES, 0)
    if type(count) is not int or count < 0:
        raise CallerError(f"The `{CLASSES}` of output `{name}` is a number of classes.", param=name)
    return count


def classify(tensor: Tensor, count: int, labels: tuple[str, ...], *, batched: bool) -> Tensor:
    """`VALUE:INDEX:LABEL` of the highest values, of each row where the model has rows. Raises `CallerError`."""
    if tensor.datatype not in ITEM_SIZE:
        raise CallerError(f"Output `{tensor.name}` is text, which has no highest values.", param=tensor.name)
    values: Array = np.frombuffer(tensor.data, DTYPES[tensor.datatype])
    if tensor.datatype == "BF16":
        values = bf16_to_fp32(values)
    rows = tensor.shape[0] if batched and tensor.shape else 1
    table = values.reshape(rows, -1)
    texts = [_text(row, index, labels) for row in table for index in _highest(row, count)]
    width = min(count, table.shape[1])
    shape = (rows, width) if batched else (width,)
    return Tensor(tensor.name, "BYTES", shape, join_bytes(texts))


def _highest(row: Array, count: int) -> Array:
    """The indices of the highest scores in descending order; equal scores in their order. NaN is the lowest."""
    keys = np.where(np.isnan(row), -np.inf, row) if row.dtype.kind == "f" else row
    order = np.argsort(keys[::-1], kind="stable")[::-1]
    return len(row) - 1 - order[:count]


def _text(row: Array, index: int, labels: tuple[str, ...]) -> bytes:
    value = row[index]
    text = f"{float(value):f}" if row.dtype.kind == "f" else str(int(value))
    label = f":{labels[index]}" if index < len(labels) else ""
    return f"{text}:{index}{label}".encode()


async def with_inputs(inference: Inference, memory: SharedMemory) -> None:
    """Read the inputs that are in shared memory. Raises `CallerError`."""
    for at, tensor in enumerate(inference.inputs):
        if SHARED_MEMORY in tensor.parameters:
            inference.inputs[at] = await memory.read(tensor)


def is_special(inference: Inference) -> bool:
    """Whether any output goes into shared memory or is classified. Most requests have none."""
    for output in inference.outputs:
        parameters = output.parameters
        if parameters and (CLASSES in parameters or SHARED_MEMORY in parameters):
            return True
    return False


def check(inference: Inference, memory: SharedMemory) -> None:
    """Check the options of outputs before anything is computed. Raises `CallerError`."""
    for output in inference.outputs:
        requested_classes(output.parameters, output.name)
        if SHARED_MEMORY in output.parameters:
            if CLASSES in output.parameters:
                raise CallerError(
                    f"Output `{output.name}` has `classification`, whose texts do not go into shared memory.",
                    param=output.name,
                )
            memory.check(output.parameters, output.name)


async def delivered(
    outputs: list[Tensor], inference: Inference, config: ModelConfig, memory: SharedMemory
) -> list[Tensor]:
    """The outputs of the response: references into shared memory, classes, or the tensors. Raises `CallerError`."""
    requested = {output.name: output.parameters for output in inference.outputs}
    delivered_outputs = []
    for tensor in outputs:
        parameters = requested.get(tensor.name, {})
        if count := requested_classes(parameters, tensor.name):
            spec = config.output(tensor.name)
            labels = spec.labels if spec else ()
            batched = config.max_batch_size > 0
            tensor = await offload.run(len(tensor.data), classify, tensor, count, labels, batched=batched)
        elif SHARED_MEMORY in parameters:
            tensor = await memory.write(tensor, parameters)
        delivered_outputs.append(tensor)
    return delivered_outputs
