"""Redaction: planted secrets and personal data leave nothing behind, and everything else stays."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.telemetry.redaction.streams import texts_of
from gateway.telemetry.redaction.texts import Redaction, path_of

ALL = Redaction(["email", "phone", "card", "ip"])
SECRETS = [
    "hr-" + "a2b3c4d5e6f7" + "-" + "S" * 43,
    "sk-proj-abcdefghijklmnop1234567890",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "AKIAIOSFODNN7EXAMPLE",
    "AIza" + "b" * 35,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
    "xoxb-123456789012-abcdefghijkl",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\n-----END RSA PRIVATE KEY-----",
]
CONTEXTS = ["{}", "my key is {}.", "({})", "a {} b", '"{}"', "x={}&y=1", "line\n{}\nline", "密钥是{}。", "é{}ü"]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("context", CONTEXTS)
def test_keys_are_always_removed(secret: str, context: str) -> None:
    text = Redaction([]).text(context.format(secret))
    assert secret[8:] not in text
    assert "[secret]" in text


@pytest.mark.parametrize(
    "text",
    [
        "password=hunter2", "api_key: abcd1234", "DB_PASSWORD='p4ss word'", "Authorization: Bearer abcdefghijkl",
        "https://user:pa55word@host/path", "?access_token=abcd&x=1", "client_secret = zzzz9999",
    ],
)  # fmt: skip
def test_named_secrets_are_removed(text: str) -> None:
    assert "[secret]" in Redaction([]).text(text)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("email", "ann.o'neil+x@mail.example.com"), ("email", "a_b%40example.org"), ("card", "4111 1111 1111 1111"),
        ("card", "5500-0000-0000-0004"), ("phone", "+49 151 23456789"), ("phone", "(030) 1234567"),
        ("phone", "0171/2345678"), ("ip", "192.168.17.4"), ("ip", "2001:db8:0:0:0:0:2:1"),
    ],
)  # fmt: skip
def test_chosen_kinds_are_removed_and_others_stay(kind: str, text: str) -> None:
    assert Redaction([kind]).text(f"see {text} there") == f"see [{kind}] there"
    assert Redaction([]).text(f"see {text} there") == f"see {text} there"
    assert Redaction([kind]).text(f"是{text}。") == f"是[{kind}]。"


@pytest.mark.parametrize(
    "text",
    ["max_tokens: 5", "the token is short", "1234 5678 9012 3456", "2026-03-02T10:30", "version 1.2.3", "a@b", "chat@2",
     "key-value stores", "00:11:22", "3.14159265358979"],
)  # fmt: skip
def test_plain_text_stays(text: str) -> None:
    assert ALL.text(text) == text


def planted(secret: str, at: Any, depth: int) -> Any:
    for level in range(depth):
        at = {"list": [1, at, None], "name": "x"} if level % 2 else [{"inner": at}, secret[:3]]
    return at


@given(
    st.sampled_from([*SECRETS[:6], "ann@example.com"]),
    st.integers(0, 12),
    st.integers(0, 3),
    st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20),
)
def test_a_secret_in_nested_json_is_removed(secret: str, depth: int, quoted: int, noise: str) -> None:
    value: Any = f"{noise} {secret} {noise}"
    for _ in range(quoted):  # JSON in a string in JSON
        value = json.dumps({"arguments": value, "n": 1})
    body = json.dumps({"messages": [planted(secret, value, depth)], secret: noise}).encode()
    redacted = ALL.body(body)
    assert redacted.changed
    assert secret.encode() not in redacted.data
    assert secret not in str(msgspec.json.decode(redacted.data))
    assert isinstance(json.loads(redacted.data)["messages"], list)


@given(st.recursive(
    st.none() | st.booleans() | st.integers(-999, 999) | st.floats(allow_nan=False) | st.sampled_from(["a", "b c"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "content", "n"]), inner),
))  # fmt: skip
def test_json_without_secrets_stays_byte_for_byte(value: Any) -> None:
    body = json.dumps(value, indent=1).encode()
    assert ALL.body(body) == (body, False)


def test_escaped_characters_hide_nothing() -> None:
    body = rb'{"a": "ann\u0040example.com", "b": "{\"x\": \"bob\\u0040example.com\"}", "password": "p\u0061ss"}'
    data = ALL.body(body).data
    assert b"example" not in data
    assert json.loads(data)["password"] == "[secret]"


def test_values_at_paths_are_removed() -> None:
    redaction = Redaction(["json:$.messages[*].content", "json:$.metadata.user", "json:$.inputs[0].data"])
    body = {
        "messages": [{"role": "user", "content": "private"}, {"role": "user", "content": [{"text": "private"}]}],
        "metadata": {"user": "private", "team": "open"},
        "inputs": [{"data": [1, 2]}, {"data": [3]}],
    }
    data = json.loads(redaction.body(json.dumps(body).encode()).data)
    assert "private" not in json.dumps(data)
    assert data["metadata"]["team"] == "open"
    assert data["messages"][0]["role"] == "user"
    assert [entry["data"] for entry in data["inputs"]] == ["[redacted]", [3]]


def test_paths_are_parsed() -> None:
    assert path_of("json:$.messages[*].content[0].a-b") == ("messages", "*", "content", 0, "a-b")


def test_binary_data_preserves_its_length() -> None:
    rest = bytes(range(48)) + bytes(range(58, 256))
    data = rest + b" ann@example.com sk-abcdefghijklmnop1234 " + rest
    masked = ALL.masked(data)
    assert len(masked) == len(data)
    assert b"example" not in masked
    assert b"mnop1234" not in masked
    assert masked[: len(rest)] == rest


def chunked(text: str, size: int) -> bytes:
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    events = [{"id": "1", "choices": [{"index": 0, "delta": {"content": piece}}]} for piece in pieces]
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events) + b"data: [DONE]\n\n"


@given(st.sampled_from(SECRETS), st.integers(1, 20))
def test_a_secret_that_a_stream_cuts_is_removed(secret: str, size: int) -> None:
    texts = texts_of(chunked(f"it is {secret} ok", size))
    assert texts == {"0.0.content": f"it is {secret} ok"} or texts == {"0.content": f"it is {secret} ok"}
    assert secret not in str(ALL.value(texts))


def test_texts_of_every_door_are_joined() -> None:
    anthropic = (
        b'event: x\ndata: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"a@"}}\r\n\r\n'
        b'data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"b.com"}}\n\n'
    )
    assert texts_of(anthropic) == {"1.text": "a@b.com"}
    responses = (
        b'data: {"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"a"}\n\n'
        b'data: {"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"b"}\n\n'
        b'data: {"type":"response.completed","response":{"output":[{"content":[{"text":"ab"}]}]}}\n\n'
    )
    assert texts_of(responses) == {"0.0.delta": "ab"}


def test_deep_and_wide_values_are_bounded() -> None:
    deep = b'{"a":' * 5000 + b'"ann@example.com"' + b"}" * 5000
    assert b"example" not in ALL.body(deep).data
