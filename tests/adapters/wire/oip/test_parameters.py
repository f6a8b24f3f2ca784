"""Each parameter that the protocol defines has one type, and a value of any other type is refused on every wire."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from tritonclient.grpc import service_pb2 as pb

from adapters.errors import CallerError
from adapters.wire.oip import (
    generate as oip_generate,
)
from adapters.wire.oip import (
    parameters as oip_parameters,
)
from adapters.wire.oip import (
    proto_requests as oip_proto,
)
from adapters.wire.oip import (
    request_view as oip_view,
)
from adapters.wire.oip import (
    requests as oip,
)
from adapters.wire.oip.bodies import TensorMetadata

VALUES: tuple[Any, ...] = (
    True,
    False,
    0,
    1,
    7,
    -1,
    2**64 - 1,
    0.0,
    1.0,
    0.5,
    "",
    "true",
    "false",
    "1",
    "text",
    None,
    [],
    [1],
    {},
)
GOOD: dict[str, tuple[Any, ...]] = {
    "sequence_id": (0, 1, 7, 2**64 - 1, "", "true", "false", "1", "text"),
    **dict.fromkeys(
        ("sequence_start", "sequence_end", "binary_data_output", "binary_data", "triton_enable_empty_final_response"),
        (True, False),
    ),
    **dict.fromkeys(
        ("priority", "timeout", "classification", "shared_memory_byte_size", "shared_memory_offset"),
        (0, 1, 7, 2**64 - 1),
    ),
    "shared_memory_region": ("", "true", "false", "1", "text"),
}
PLACES = {
    "request": oip_parameters.OF_A_REQUEST,
    "input": oip_parameters.OF_AN_INPUT,
    "output": oip_parameters.OF_AN_OUTPUT,
}


def cases() -> Iterator[tuple[str, str, Any, bool]]:
    for place, parameters in PLACES.items():
        for name in parameters:
            for value in VALUES:
                fits = any(type(value) is type(good) and value == good for good in GOOD[name])
                yield place, name, value, fits


def body(place: str, name: str, value: Any) -> bytes:
    tensor: dict[str, Any] = {"name": "X", "shape": [1, 1], "datatype": "INT32", "data": [1]}
    fields: dict[str, Any] = {"inputs": [tensor], "outputs": [{"name": "Y"}]}
    at = {"request": fields, "input": tensor, "output": fields["outputs"][0]}[place]
    at["parameters"] = {name: value}
    if place == "input":
        tensor["parameters"].setdefault("shared_memory_region", "r")
        del tensor["data"]
    return msgspec.json.encode(fields)


def message(place: str, name: str, value: Any) -> bytes | None:
    """None for a value that protobuf has no form for."""
    kinds = {bool: "bool_param", float: "double_param", str: "string_param"}
    if isinstance(value, int) and not isinstance(value, bool):
        kind = "uint64_param" if value >= 2**63 else "int64_param"
    elif type(value) in kinds:
        kind = kinds[type(value)]
    else:
        return None
    proto = pb.ModelInferRequest(model_name="m")
    tensor, output = proto.inputs.add(name="X", datatype="INT32", shape=[1, 1]), proto.outputs.add(name="Y")
    at = {"request": proto, "input": tensor, "output": output}[place]
    at.parameters[name].CopyFrom(pb.InferParameter(**{kind: value}))
    if place == "input":
        if name != "shared_memory_region":
            tensor.parameters["shared_memory_region"].string_param = "r"
    else:
        proto.raw_input_contents.append(bytes(4))
    return bytes(proto.SerializeToString())


def refused(decode: Any, *arguments: Any) -> bool:
    try:
        decode(*arguments)
    except CallerError:
        return True
    return False


@pytest.mark.parametrize("place", PLACES)
def test_every_parameter_refuses_every_other_type(place: str) -> None:
    for at, name, value, fits in cases():
        if at != place:
            continue
        case = (name, value)
        assert refused(oip.decode_request, body(place, name, value), None, "m") is not fits, case
        if (proto := message(place, name, value)) is not None:
            assert refused(oip_proto.decode_infer_request, proto) is not fits, case
        if place == "request":
            seen = refused(lambda sent: oip_view.request_of(sent, model="m", version=""), body(place, name, value))
            assert seen is not fits, case
            inputs = {"X": TensorMetadata("X", "INT32", (-1, 1))}
            for prompt in ({"X": 1, name: value}, {"X": 1, "parameters": {name: value}}):
                sent = msgspec.json.encode(prompt)
                assert refused(oip_generate.decode_generate, sent, "m", "", inputs) is not fits, case


def test_a_parameter_of_the_model_s_own_has_any_type() -> None:
    for value in (True, 1, -1, 0.5, "text"):
        assert oip.decode_request(body("request", "mine", value), None, "m").parameters == {"mine": value}
        sent = message("request", "mine", value)
        assert sent is not None
        assert oip_proto.decode_infer_request(sent).parameters == {"mine": value}


def test_a_refusal_names_the_parameter_and_its_tensor() -> None:
    with pytest.raises(CallerError, match=r"^invalid value type for 'priority' parameter, expected"):
        oip.decode_request(body("request", "priority", "high"), None, "m")
    with pytest.raises(CallerError, match=r"^invalid value type for 'classification' parameter of `Y`, expected"):
        oip.decode_request(body("output", "classification", "yes"), None, "m")
