"""CloudEvents: what is encoded is decoded, and nothing else than an event or its error comes of any input."""

import base64
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapters.wire.cloudevents import (
    MAX_EXTENSIONS,
    MAX_ID,
    CloudEvent,
    EnvelopeError,
    decode,
    format_time,
    headers_of,
    parse,
)

TEXT = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=60)
NAMES = st.from_regex(r"[a-z0-9]{1,20}", fullmatch=True).filter(
    lambda name: name not in ("specversion", "id", "source", "type", "datacontenttype", "data")
)
EVENTS = st.builds(
    CloudEvent,
    id=TEXT,
    source=TEXT,
    type=TEXT,
    data=st.binary(max_size=100),
    content_type=st.sampled_from(["", "application/json", "text/plain", "application/octet-stream"]),
    extensions=st.dictionaries(NAMES, TEXT, max_size=8),
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**31), 2**31)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
HEADERS = st.sampled_from(["content-type", "ce_id", "ce_specversion"])
ATTRIBUTES = st.sampled_from(
    ["specversion", "id", "source", "type", "data", "data_base64", "datacontenttype", "time", "x", "UPPER", ""]
)


@given(EVENTS)
def test_an_event_in_binary_mode_comes_back(event: CloudEvent) -> None:
    assert decode(headers_of(event), event.data) == event


@given(EVENTS, st.sampled_from(["ce-", "ce_", "cloudevents:", "cloudevents_"]))
def test_every_prefix_of_a_binding_is_read(event: CloudEvent, prefix: str) -> None:
    headers = {name.replace("ce_", prefix, 1) if name.startswith("ce_") else name: value
               for name, value in headers_of(event).items()}  # fmt: skip
    assert decode(headers, event.data) == event


@given(EVENTS)
def test_an_event_in_structured_mode_comes_back(event: CloudEvent) -> None:
    fields: dict[str, Any] = {"specversion": "1.0", "id": event.id, "source": event.source, "type": event.type}
    fields |= event.extensions
    fields["data_base64"] = base64.b64encode(event.data).decode()
    if event.content_type:
        fields["datacontenttype"] = event.content_type
    assert decode({"content-type": "application/cloudevents+json; charset=utf-8"}, json.dumps(fields).encode()) == event


@given(JSON)
def test_json_data_is_forwarded(data: Any) -> None:
    fields = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": data}
    event = decode({"content-type": "application/cloudevents+json"}, json.dumps(fields).encode())
    assert event is not None
    assert (json.loads(event.data) == data) if data is not None else event.data in (b"", b"null")


@given(
    st.dictionaries(st.text(max_size=12) | HEADERS, st.text(), max_size=6),
    st.binary(max_size=60) | st.dictionaries(ATTRIBUTES, JSON, max_size=9).map(lambda made: json.dumps(made).encode()),
    st.booleans(),
)
@example({}, b"[" * 100_000, True)
@example({}, b'{"id":' * 50_000, True)
@example(
    {}, b'{"specversion":"1.0","id":"1","source":"s","type":"t","data":"\xff","datacontenttype":"text/plain"}', True
)
def test_any_message_is_an_event_or_has_a_reason(headers: dict[str, str], body: bytes, structured: bool) -> None:
    if structured:
        headers = {**headers, "content-type": "application/cloudevents+json"}
    event, reason = None, ""
    try:
        event = decode(headers, body)
    except EnvelopeError as error:
        reason = f"{error.code}: {error.message}"
    assert not reason or reason.endswith(".")
    assert event is None or (event.id and event.source and event.type)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"ce_id": ""}, "missing_attribute"),
        ({"ce_specversion": "0.3"}, "unsupported_version"),
        ({"ce_id": "x" * (MAX_ID + 1)}, "invalid_attribute"),
        ({"ce_subject": "a\nb"}, "invalid_attribute"),
        ({f"ce_x{number}": "1" for number in range(MAX_EXTENSIONS + 1)}, "too_many_attributes"),
        ({"content-type": "application/cloudevents-batch+json"}, "batched_events"),
        ({"content-type": "application/cloudevents+avro"}, "unsupported_format"),
    ],
)
def test_a_mistake_has_a_code(changes: dict[str, str], code: str) -> None:
    event = CloudEvent("1", "/s", "t", b"")
    with pytest.raises(EnvelopeError) as raised:
        decode({**headers_of(event), **changes}, b"")
    assert raised.value.code == code


@given(st.floats(0, 4e9))
def test_a_time_comes_back_to_the_millisecond(utc: float) -> None:
    parsed = parse(format_time(utc))
    assert parsed is not None
    assert abs(parsed - utc) < 0.0011


@given(st.text(max_size=40))
def test_any_text_is_a_time_or_none(text: str) -> None:
    parse(text)
