"""The door of Converse over a real socket, with AWS's own client before it, which signs and checks every frame."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Any

import botocore.session
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, EventStreamError

from adapters.errors import CapacityError, TransportError, Unsupported
from adapters.fake import FakeAdapter, Script
from adapters.types import Usage
from adapters.wire.anthropic.message_request import MessagesRequest, TokenCount
from gateway.auth.aws import access_key_id, secret_of
from tests.support.chats import DONE, USAGE, chunk, completion
from tests.support.doors import Door, door
from tests.support.gateways import PEPPER

pytestmark = pytest.mark.realtime
Object = dict[str, Any]
HELLO: Any = [{"role": "user", "content": [{"text": "hi"}]}]
PIXEL = b"\x89PNG\r\n\x1a\n" + b"\0" * 16
CALL = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"in": "Oslo"}'}}
TOOLS = {"tools": [{"toolSpec": {"name": "weather", "description": "d", "inputSchema": {"json": {"type": "object"}}}}]}
STREAM = (
    chunk({"role": "assistant", "content": ""}), chunk({"reasoning_content": "Hm."}), chunk({"content": "Hel"}),
    chunk({"content": "lo!"}), chunk({"tool_calls": [CALL]}), chunk({}, "tool_calls"), chunk(None, usage=USAGE), DONE,
)  # fmt: skip


def whole(**message: Any) -> FakeAdapter:
    script = Script(chunks=(completion("Hello!", **message),), usage=Usage(9, 4, exact=True))
    return FakeAdapter(script)


class Client:
    """AWS's client, in a thread: it is no coroutine."""

    def __init__(self, d: Door) -> None:
        self.door = d
        self._client = botocore.session.get_session().create_client(
            "bedrock-runtime", region_name="eu-west-1", endpoint_url=d.url,
            config=Config(retries={"total_max_attempts": 1}),
            aws_access_key_id=access_key_id(d.rig.key.id), aws_secret_access_key=secret_of(PEPPER, d.rig.key.id),
        )  # fmt: skip

    def close(self) -> None:
        self._client.close()

    async def converse(self, **fields: Any) -> Any:
        return await asyncio.to_thread(self._client.converse, modelId="chat", **fields)

    async def count(self, given: Object) -> int:
        counted = await asyncio.to_thread(self._client.count_tokens, modelId="chat", input=given)
        tokens: int = counted["inputTokens"]
        return tokens

    async def events(self, **fields: Any) -> list[Any]:
        def read() -> list[Any]:
            with closing(self._client.converse_stream(modelId="chat", **fields)["stream"]) as stream:
                return list(stream)

        return await asyncio.to_thread(read)


@asynccontextmanager
async def opened(*fakes: FakeAdapter) -> AsyncIterator[Client]:
    async with door(*(fakes or (whole(),))) as d:
        client = await asyncio.to_thread(Client, d)
        yield client
        client.close()


def native(client: Client) -> Object:
    """The message that the pool received."""
    request = client.door.fake.calls[-1].request
    assert isinstance(request, MessagesRequest)
    return {name: json.loads(bytes(raw)) for name, raw in request.payload.native.items()}


async def test_a_whole_answer_and_its_usage() -> None:
    async with opened() as client:
        system = [{"text": "Be kind."}, {"cachePoint": {"type": "default"}}]
        answer = await client.converse(messages=HELLO, system=system)
        assert answer["output"]["message"] == {"role": "assistant", "content": [{"text": "Hello!"}]}
        assert answer["stopReason"] == "end_turn"
        usage = answer["usage"]
        assert (usage["inputTokens"], usage["outputTokens"], usage["cacheReadInputTokens"]) == (3, 4, 6)
        assert answer["ResponseMetadata"]["RequestId"].startswith("req_")
        assert native(client)["system"] == [
            {"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}},
        ]


async def test_every_block_of_a_history_arrives() -> None:
    history = [
        {"role": "user", "content": [
            {"text": "see"}, {"image": {"format": "png", "source": {"bytes": PIXEL}}},
            {"cachePoint": {"type": "default"}},
            {"document": {"format": "pdf", "name": "a", "source": {"bytes": b"%PDF"}}},
            {"document": {"format": "md", "name": "b", "source": {"bytes": "# ä".encode()}}},
        ]},
        {"role": "assistant", "content": [
            {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "s"}}},
            {"toolUse": {"toolUseId": "t1", "name": "weather", "input": {"in": "Oslo"}}},
        ]},
        {"role": "user", "content": [
            {"toolResult": {"toolUseId": "t1", "content": [{"json": {"c": 3}}, {"text": "x"}], "status": "error"}},
        ]},
    ]  # fmt: skip
    fields: Object = {
        "inferenceConfig": {"maxTokens": 9, "temperature": 0.5, "topP": 0.5, "stopSequences": ["x"]},
        "toolConfig": {**TOOLS, "toolChoice": {"tool": {"name": "weather"}}},
        "additionalModelRequestFields": {"top_k": 3, "anthropic_beta": ["a-1"]},
    }
    async with opened() as client:
        await client.converse(messages=history, **fields)
        message = native(client)
    first, second, third = message["messages"]
    image = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PIXEL).decode()}
    assert first["content"][1] == {"type": "image", "source": image, "cache_control": {"type": "ephemeral"}}
    kinds = [block["source"]["media_type"] for block in first["content"][2:]]
    assert kinds == ["application/pdf", "text/plain"]
    assert first["content"][3]["source"]["data"] == "# ä"
    assert second["content"][0] == {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    assert second["content"][1] == {"type": "tool_use", "id": "t1", "name": "weather", "input": {"in": "Oslo"}}
    result = third["content"][0]
    assert (result["is_error"], result["content"][0]) == (True, {"type": "text", "text": '{"c":3}'})
    assert message["tools"] == [{"name": "weather", "input_schema": {"type": "object"}, "description": "d"}]
    assert message["tool_choice"] == {"type": "tool", "name": "weather"}
    assert (message["max_tokens"], message["stop_sequences"], message["top_k"]) == (9, ["x"], 3)


async def test_a_stream_has_the_frames_of_thoughts_text_and_calls() -> None:
    async with opened(FakeAdapter(Script(chunks=STREAM))) as client:
        events = await client.events(messages=HELLO, toolConfig=TOOLS)
    names = [next(iter(event)) for event in events]
    assert (names[0], names[-2], names[-1]) == ("messageStart", "messageStop", "metadata")
    deltas = [event["contentBlockDelta"]["delta"] for event in events if "contentBlockDelta" in event]
    assert "".join(delta.get("text", "") for delta in deltas) == "Hello!"
    thoughts = [delta["reasoningContent"] for delta in deltas if "reasoningContent" in delta]
    assert thoughts[0] == {"text": "Hm."}
    (start,) = [event["contentBlockStart"] for event in events if "contentBlockStart" in event]
    assert start["start"]["toolUse"]["name"] == "weather"
    assert json.loads("".join(d["toolUse"]["input"] for d in deltas if "toolUse" in d)) == {"in": "Oslo"}
    assert names.count("contentBlockStop") == 3
    assert events[-2]["messageStop"]["stopReason"] == "tool_use"
    assert (events[-1]["metadata"]["usage"]["inputTokens"], events[-1]["metadata"]["usage"]["outputTokens"]) == (3, 4)


async def test_errors_are_those_of_the_service() -> None:
    async with opened(FakeAdapter(Script(fault=CapacityError("full")))) as client:
        with pytest.raises(ClientError) as refused:
            await client.converse(messages=HELLO)
        assert refused.value.response["Error"]["Code"] == "ServiceUnavailableException"
    broken = FakeAdapter(Script(chunks=STREAM[:3], fault=TransportError("gone"), fault_after=3))
    async with opened(broken) as client:
        with pytest.raises(EventStreamError, match="modelStreamErrorException"):
            await client.events(messages=HELLO)


VIDEO = {"video": {"format": "mp4", "source": {"bytes": b"x"}}}
S3 = {"format": "png", "source": {"s3Location": {"uri": "s3://a/b"}}}


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"guardrailConfig": {"guardrailIdentifier": "g", "guardrailVersion": "1"}}, "guardrailConfig"),
        ({"messages": [{"role": "user", "content": [VIDEO]}]}, "messages.0.content.0.video"),
        ({"messages": [{"role": "user", "content": [{"image": S3}]}]}, "messages.0.content.0.image"),
        ({"toolConfig": {"tools": [{"systemTool": {"name": "nova_grounding"}}]}}, "toolConfig.tools.0"),
    ],
)
async def test_a_block_without_an_equivalent_is_refused_by_the_name_of_its_field(fields: Object, name: str) -> None:
    async with opened() as client:
        with pytest.raises(ClientError) as refused:
            await client.converse(**{"messages": HELLO, **fields})
        assert refused.value.response["Error"]["Code"] == "ValidationException"
        assert name in refused.value.response["Error"]["Message"]


# ── counts ────────────────────────────────────────────────────────────────────────────────────────────────

MESSAGE: Object = {"messages": [{"role": "user", "content": "hi"}], "system": "Be brief."}
INVOKED = json.dumps({"anthropic_version": "bedrock-2023-05-31", "max_tokens": 5, **MESSAGE}).encode()
CONVERSED: Object = {"messages": HELLO, "system": [{"text": "Be brief."}], "toolConfig": TOOLS}


COUNTED = {"invoke": {"invokeModel": {"body": INVOKED}}, "converse": {"converse": CONVERSED}}


@pytest.mark.parametrize("given", COUNTED.values(), ids=COUNTED)
async def test_tokens_are_counted_by_the_pool_or_estimated(given: Object) -> None:
    counts = FakeAdapter(Script(chunks=(b'{"input_tokens": 7}',)))
    async with opened(counts) as client:
        assert await client.count(given) == 7
        request = counts.calls[-1].request
        assert isinstance(request, TokenCount)
        assert isinstance(request.chat, MessagesRequest)
        sent = {name: json.loads(bytes(raw)) for name, raw in request.chat.payload.native.items()}
        assert sent["model"] == "chat"
        assert b"Be brief." in json.dumps(sent["system"]).encode()
        assert ("tools" in sent) == ("converse" in given)
    async with opened(FakeAdapter(Script(fault=Unsupported("no count")))) as client:
        assert await client.count(given) >= 3


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "`input` has not the form"),
        ({"converse": {}, "invokeModel": {}}, "`input` has not the form"),
        ({"other": {}}, "`input.other`"),
        ({"invokeModel": {"body": "?"}}, "`input.invokeModel.body` has not the form"),
        ({"invokeModel": {"body": base64.b64encode(b"[]").decode()}}, "JSON object"),
        ({"converse": {"messages": [], "guardrailConfig": {}}}, "`guardrailConfig`"),
    ],
)
async def test_a_count_in_another_form_is_refused_by_the_name_of_its_field(given: Object, words: str) -> None:
    async with door(whole()) as d:
        response = await d.send("POST", "/model/chat/count-tokens", {"input": given})
        assert (response.status, response.headers["x-amzn-errortype"]) == (400, "ValidationException")
        assert words in (await response.json())["message"]
