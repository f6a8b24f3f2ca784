"""Checks a request's tensors against the metadata of their model."""

from collections.abc import Iterable, Sequence

from adapters.errors import CallerError
from adapters.tensors import Inference
from adapters.wire.apps.tensors import fits
from adapters.wire.oip.bodies import TensorMetadata


def check(inference: Inference, inputs: Sequence[TensorMetadata]) -> None:
    """Raise `CallerError`, with Triton's text, for tensors that the model does not accept."""
    model, declared = inference.model_name, {tensor.name: tensor for tensor in inputs}
    for tensor in inference.inputs:
        name, expected = tensor.name, declared.pop(tensor.name, None)
        if expected is None:
            names = ", ".join(one.name for one in inputs)
            message = f"unexpected inference input '{name[:64]}' for model '{model}'. It has: {names}."
            raise CallerError(message, param=name[:64])
        if tensor.datatype != expected.datatype:
            given = f"inference input '{name}' data-type is '{tensor.datatype}'"
            raise CallerError(f"{given}, but model '{model}' expects '{expected.datatype}'", param=name)
        if not fits(tensor.shape, expected.shape):
            shapes = f"Expected {_dims(expected.shape)}, got {_dims(tensor.shape)}."
            raise CallerError(f"unexpected shape for input '{name}' for model '{model}'. {shapes}", param=name)
    for name in declared:
        counts = f"expected {len(inputs)} inputs but got {len(inference.inputs)} inputs for model '{model}'"
        raise CallerError(f"{counts}. Input '{name}' is missing.", param=name)


def _dims(shape: Iterable[int]) -> str:
    return f"[{','.join(map(str, shape))}]"
