"""Every message of the service as plain objects, and as tritonclient's own messages."""

import json
from typing import Any

import msgspec
import pytest
from google.protobuf.descriptor import FieldDescriptor as Field
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonclient.grpc import model_config_pb2, service_pb2

from adapters.errors import CallerError
from adapters.wire import proto_json, protos

DEPTH = 3
WORDS = st.text("aé\0 ", max_size=4)
NUMBERS: dict[int, st.SearchStrategy[Any]] = {
    Field.TYPE_BOOL: st.booleans(),
    Field.TYPE_STRING: WORDS,
    Field.TYPE_BYTES: st.binary(max_size=4),
    Field.TYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    Field.TYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    Field.TYPE_UINT32: st.integers(0, 2**32 - 1),
    Field.TYPE_UINT64: st.integers(0, 2**64 - 1),
    Field.TYPE_FLOAT: st.floats(width=32, allow_nan=False, allow_infinity=False),
    Field.TYPE_DOUBLE: st.floats(allow_nan=False, allow_infinity=False),
}


def names() -> list[str]:
    """All that tritonclient has too; its own are of an older release."""
    return sorted(name for name in vars(protos.inference) if hasattr(service_pb2, name))


@st.composite
def filled(draw: st.DrawFn, descriptor: Any, depth: int = DEPTH) -> dict[str, Any]:
    """Some fields of a message, as plain objects."""
    fields: dict[str, Any] = {}
    taken = set[str]()
    for field in descriptor.fields:
        choice = field.containing_oneof.name if field.containing_oneof else field.name
        if choice in taken or draw(st.integers(0, 2)) or (field.message_type and not depth):
            continue
        taken.add(choice)
        fields[field.name] = draw(_value(field, depth))
    return fields


def _value(field: Any, depth: int) -> st.SearchStrategy[Any]:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        key, value = kind.fields_by_name["key"], kind.fields_by_name["value"]
        return st.dictionaries(_one(key, depth).map(str), _one(value, depth), min_size=1, max_size=2)
    return st.lists(_one(field, depth), min_size=1, max_size=2) if field.is_repeated else _one(field, depth)


def _one(field: Any, depth: int) -> st.SearchStrategy[Any]:
    if field.message_type is not None:
        return filled(field.message_type, depth - 1)
    if field.enum_type is not None:
        return st.sampled_from([value.name for value in field.enum_type.values])
    return NUMBERS[field.type]


@pytest.mark.parametrize("name", names())
@settings(max_examples=10)
@given(data=st.data())
def test_messages_go_through_json_and_are_tritonclients(name: str, data: st.DataObject) -> None:
    kind = getattr(protos.inference, name)
    written = msgspec.json.encode(data.draw(filled(kind.DESCRIPTOR)))
    message = proto_json.fill(kind(), json.loads(written))
    again = proto_json.fill(kind(), json.loads(msgspec.json.encode(proto_json.plain(message))))
    assert again == message
    theirs = getattr(service_pb2, name).FromString(message.SerializeToString())
    assert kind.FromString(theirs.SerializeToString()) == message


@settings(max_examples=30)
@given(st.data())
def test_configurations_go_through_json_and_are_tritonclients(data: st.DataObject) -> None:
    kind = protos.model_config.ModelConfig
    message = proto_json.fill(kind(), json.loads(msgspec.json.encode(data.draw(filled(kind.DESCRIPTOR, 2)))))
    assert proto_json.fill(kind(), json.loads(msgspec.json.encode(proto_json.plain(message)))) == message
    theirs = model_config_pb2.ModelConfig.FromString(message.SerializeToString())
    assert kind.FromString(theirs.SerializeToString()) == message


@pytest.mark.parametrize("name", names())
@settings(max_examples=10)
@given(noise=st.recursive(st.none() | st.integers() | WORDS, lambda one: st.lists(one, max_size=2), max_leaves=3))
def test_objects_that_are_no_message_are_refused(name: str, noise: Any) -> None:
    kind = getattr(protos.inference, name)
    for field in kind.DESCRIPTOR.fields:
        try:
            proto_json.fill(kind(), {field.name: noise})
        except CallerError as error:
            assert "not valid" in error.message  # noqa: PT017 - any other error fails the test
