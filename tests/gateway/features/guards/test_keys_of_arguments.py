"""Arguments of tools that are objects: the key of a value counts as the word before it."""

import json
from typing import Any

import pytest

from adapters.errors import ContentFiltered
from adapters.fake import FakeAdapter, Script
from adapters.requests import AppRequest, GenerateRequest
from adapters.types import ANTHROPIC, APP
from adapters.wire.native_chat import NativeChat
from tests.support.guarding import guarded, received
from tests.support.personal import PERSONAL

SECRETS: dict[str, Any] = {"name": "keys", "kind": "secrets", "action": "mask"}
AWS = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzT4mQ8vLp2"
KEYS = {"bsn": "111222333", "nif": "501964843", "tfn": "876543210", "passport": "C01X00T47", "telefon": "301234567"}
SECRET_KEYS = ["aws_secret_access_key", "AWS_SECRET_ACCESS_KEY", "secretAccessKey", "SecretAccessKey"]
GEMINI = "/v1beta/models/chat:generateContent"


def prompts(arguments: Any) -> dict[str, dict[str, Any]]:
    """A prompt with arguments and with a result of a tool, by its door."""
    used = {"type": "tool_use", "id": "t", "name": "f", "input": arguments}
    call = {"functionCall": {"name": "f", "args": arguments}}
    result = {"functionResponse": {"name": "f", "response": arguments}}
    return {
        "/v1/messages": {"max_tokens": 9, "messages": [{"role": "assistant", "content": [used]}]},
        GEMINI: {"contents": [{"role": "model", "parts": [call]}, {"role": "user", "parts": [result]}]},
    }


def sent(adapter: FakeAdapter) -> str:
    """All that the server may have received of the only request."""
    request = adapter.calls[0].request
    assert isinstance(request, GenerateRequest)
    fields = dict(request.fields)
    if isinstance(request, NativeChat):
        fields |= {f"native {name}": raw for name, raw in request.payload.native.items()}
    return " ".join(bytes(raw).decode() for raw in fields.values())


@pytest.mark.parametrize("nested", ["plain", "number", "list", "deep", "escaped"])
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("path", prompts({}))
async def test_numbers_of_a_person_have_their_key_before_them(path: str, key: str, nested: str) -> None:
    value: Any = KEYS[key]
    if nested == "number":
        value = int(value) if value.isdigit() else value
    shown = json.dumps({key: value}) if nested == "escaped" else value
    arguments = {
        "list": {key: [value, value]}, "deep": {"a": [{"b": {key: value}}]}, "escaped": {"a": shown},
    }.get(nested, {key: value})  # fmt: skip
    one = guarded(Script(), guards=[PERSONAL])
    await received(one, path, **prompts(arguments)[path])
    (adapter,) = one.adapters["main"]
    assert KEYS[key] not in sent(adapter)
    assert f"<{key.upper().replace('NIF', 'NIFPT').replace('TELEFON', 'PHONE')}_" in sent(adapter).replace(
        "\\u003c", "<"
    )
    one.assert_idle()


@pytest.mark.parametrize("path", prompts({}))
async def test_the_same_number_without_such_a_key_stays(path: str) -> None:
    one = guarded(Script(), guards=[PERSONAL])
    await received(one, path, **prompts({"order": "111222333", "b": 876543210})[path])
    (adapter,) = one.adapters["main"]
    assert "111222333" in sent(adapter)
    assert "876543210" in sent(adapter)


@pytest.mark.parametrize("key", SECRET_KEYS)
@pytest.mark.parametrize("path", prompts({}))
async def test_secrets_have_their_key_before_them(path: str, key: str) -> None:
    one = guarded(Script(), guards=[SECRETS])
    await received(one, path, **prompts({key: AWS, "other": AWS[::-1]})[path])
    (adapter,) = one.adapters["main"]
    assert AWS not in sent(adapter)
    assert AWS[::-1] in sent(adapter)
    assert one.log.records[0].guards == {("keys", "mask", "enforce", "prompt"): 1 if path == "/v1/messages" else 2}


@pytest.mark.parametrize("space", ["", " ", "\n\t      "])
async def test_keys_of_arguments_in_answers_count(space: str) -> None:
    call = {"type": "tool_use", "id": "t", "name": "f", "input": {"secretAccessKey": AWS}}
    message = {"id": "m", "type": "message", "role": "assistant", "content": [call], "usage": {}}
    body = json.dumps(message).replace(": ", f":{space}")
    one = guarded(Script(chunks=(body.encode(),), form=ANTHROPIC), guards=[{**SECRETS, "action": "block"}])
    ((status, text, _),) = await received(one, "/v1/messages")
    assert status == 400
    assert AWS not in text


async def test_keys_in_bodies_of_apps_count() -> None:
    body = json.dumps({"a": {"bsn": 111222333}}).encode()
    request = AppRequest(model="chat", path="/x", content_type="application/json", body=body, size=len(body))
    one = guarded(Script(form=APP), guards=[{**PERSONAL, "action": "block"}])
    with pytest.raises(ContentFiltered):
        await one.core.handle(one.principal, request, {}, one.record())


async def test_a_block_by_a_key_reaches_no_server() -> None:
    one = guarded(Script(), guards=[{**SECRETS, "action": "block"}])
    ((status, _, _),) = await received(one, "/v1/messages", **prompts({SECRET_KEYS[0]: AWS})["/v1/messages"])
    assert (status, one.adapters["main"][0].calls) == (400, [])
