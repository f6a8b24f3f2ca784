"""Delivers outputs in shared memory, or as the classes with the highest values, as the request selects."""

from __future__ import annotations

from adapters import offload
from adapters.errors import CallerError
from adapters.tensors import CLASSES, SHARED_MEMORY, Inference, Tensor
from runtimes.tensor.classification import classify, requested_classes
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.shared_memory import SharedMemory


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
