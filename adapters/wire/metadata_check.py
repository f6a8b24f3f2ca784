"""Tensors held against what is known of their model."""

from collections.abc import Sequence

from adapters.errors import CallerError
from adapters.tensors import Inference
from adapters.wire.app_tensors import fits
from adapters.wire.oip_bodies import TensorMetadata


def check(inference: Inference, inputs: Sequence[TensorMetadata]) -> None:
    """Raises `CallerError` for tensors that are not those which the model takes."""
    known = {tensor.name: tensor for tensor in inputs}
    for tensor in inference.inputs:
        wanted = known.pop(tensor.name, None)
        if wanted is None:
            names = ", ".join(one.name for one in inputs)
            raise CallerError(f"The model has no input `{tensor.name[:64]}`. It has: {names}.", param=tensor.name[:64])
        if tensor.datatype != wanted.datatype:
            raise CallerError(
                f"Input `{tensor.name}` takes {wanted.datatype}, and has {tensor.datatype}.", param=tensor.name
            )
        if not fits(tensor.shape, wanted.shape):
            told = f"Input `{tensor.name}` has the shape {list(tensor.shape)}, and takes {list(wanted.shape)}."
            raise CallerError(told, param=tensor.name)
    for name in known:
        raise CallerError(f"Input `{name}` is missing.", param=name)
