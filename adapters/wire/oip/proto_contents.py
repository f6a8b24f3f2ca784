"""Typed contents and parameters of the Open Inference Protocol's gRPC messages."""

from collections.abc import Mapping
from math import prod
from struct import error, pack
from typing import Any

from adapters.errors import CallerError
from adapters.tensors import NO_PARAMETERS, Parameter, Parameters, join_bytes

FIELDS = {
    "BOOL": ("bool_contents", "?"),
    "INT8": ("int_contents", "b"), "INT16": ("int_contents", "h"), "INT32": ("int_contents", "i"),
    "INT64": ("int64_contents", "q"),
    "UINT8": ("uint_contents", "B"), "UINT16": ("uint_contents", "H"), "UINT32": ("uint_contents", "I"),
    "UINT64": ("uint64_contents", "Q"),
    "FP32": ("fp32_contents", "f"), "FP64": ("fp64_contents", "d"),
    "BYTES": ("bytes_contents", ""),
}  # fmt: skip
"""The field of each datatype's elements, and their `struct` code. FP16 and BF16 have none."""


def there(tensor: Any) -> bool:
    """Whether a tensor has typed contents. MLServer sends empty ones beside raw ones."""
    return tensor.HasField("contents") and bool(tensor.contents.ListFields())


def read(contents: Any, datatype: str, shape: tuple[int, ...], name: str) -> bytes:
    """Convert typed contents to binary form. Raises `CallerError`."""
    if datatype not in FIELDS:
        raise CallerError(f"{datatype} has no typed contents. Send `{name}` with `raw_input_contents`.", param=name)
    field, code = FIELDS[datatype]
    if any(other.name != field for other, _ in contents.ListFields()):
        raise CallerError(f"The contents of `{name}` are not in `{field}`, where {datatype} belongs.", param=name)
    values = list(getattr(contents, field))
    count = prod(shape)
    if len(values) != count:
        raise CallerError(
            f"`{name}` has {len(values)} elements in `{field}`, and {count} in its shape {list(shape)}.", param=name
        )
    if datatype == "BYTES":
        return join_bytes(values)
    try:
        return pack(f"<{count}{code}", *values)
    except (error, OverflowError):
        raise CallerError(f"`{name}` has a number that does not fit into {datatype}.", param=name) from None


def typed(parameter: Any, name: str, field: str) -> Any:
    """The value of a parameter message. Raises `CallerError` unless it has exactly one type."""
    if parameter.WhichOneof("parameter_choice") != field:
        raise CallerError(f"invalid value type for '{name[:64]}' parameter, expected {field}", param=name[:64])
    return getattr(parameter, field)


def parameters_of(encoded: Mapping[str, Any]) -> Parameters:
    """Decode the parameters of a message."""
    if not encoded:
        return NO_PARAMETERS
    parameters: dict[str, Parameter] = {}
    for name, value in encoded.items():
        if choice := value.WhichOneof("parameter_choice"):
            parameters[name] = getattr(value, choice)
    return parameters


def put_parameters(message: Any, parameters: Parameters) -> None:
    """Encode parameters. Raises `CallerError` for a number out of range."""
    for name, value in parameters.items():
        one = message[name]
        if isinstance(value, bool):
            one.bool_param = value
        elif isinstance(value, str):
            one.string_param = value
        elif isinstance(value, float):
            one.double_param = value
        elif -(2**63) <= value < 2**63:
            one.int64_param = value
        elif 0 < value < 2**64:
            one.uint64_param = value
        else:
            raise CallerError(f"The parameter `{name}` does not fit into 64 bits.", param=name)
