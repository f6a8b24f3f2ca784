"""Raw requests of the Open Inference Protocol: the body is one input's data, and the model's metadata describes it."""

from collections.abc import Sequence
from math import prod

from adapters.errors import CallerError
from adapters.tensors import ITEM_SIZE, Inference, Tensor
from adapters.wire.oip import json_data as oip_data


def complete(inference: Inference, name: str, datatype: str, dims: tuple[int, ...], *, batched: bool) -> Inference:
    """Complete a raw request from the model's only input; `dims` are without the batch. Raises `CallerError`."""
    data = inference.inputs[0].data
    fixed = prod([dim for dim in dims if dim >= 0])
    variable = sum(dim < 0 for dim in dims)
    if datatype == "BYTES":
        if variable or fixed != 1:
            message = f"A raw request is one element, and input `{name}` has the shape {list(dims)}."
            raise CallerError(message, param=name)
        data = len(data).to_bytes(4, "little") + data
    elif datatype not in ITEM_SIZE:
        raise oip_data.unknown_datatype(datatype, name)
    elif variable > 1:
        raise CallerError(
            f"Input `{name}` has several variable dimensions, {list(dims)}: a raw request cannot define them.",
            param=name,
        )
    else:
        row = fixed * ITEM_SIZE[datatype]
        length = len(data) // row if variable and row else 1
        if length * row != len(data):
            raise CallerError(
                f"The body has {len(data)} bytes, which is not input `{name}`: {datatype} of {list(dims)}.", param=name
            )
        dims = tuple(length if dim < 0 else dim for dim in dims)
    shape = (1, *dims) if batched else dims
    return Inference(
        inference.model_name, inference.model_version, "", inference.parameters,
        [Tensor(name, datatype, shape, data)], [],
    )  # fmt: skip


def complete_from_metadata(inference: Inference, inputs: Sequence[tuple[str, str, tuple[int, ...]]]) -> Inference:
    """Complete a raw request from the model's metadata (name, datatype, shape of each input). A first variable
    dimension beside another one is the batch. Raises `CallerError`.
    """
    if len(inputs) != 1:
        raise CallerError(f"A raw request is for models with one input, and this one has {len(inputs)}.")
    name, datatype, shape = inputs[0]
    if shape and shape[0] < 0 and (any(dim < 0 for dim in shape[1:]) or datatype == "BYTES"):
        return complete(inference, name, datatype, shape[1:], batched=True)
    return complete(inference, name, datatype, shape, batched=False)
