"""Servers that answer a request for a stream with a whole answer: official clients read it as the stream that it is."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from adapters.http1.message import Response
from adapters.registry import Address, make
from config.schema.config import PoolConfig
from tests.support.doors import HI, Before, Door, door_of
from tests.support.gateways import Rig, config
from tests.support.upstreams import upstream

THINKING = {"type": "thinking", "thinking": "hm", "signature": "s"}
USE = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": [1, "é"]}}
MESSAGE: dict[str, Any] = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "tool_use",
    "stop_sequence": None, "content": [THINKING, {"type": "text", "text": "yes"}, USE],
    "usage": {"input_tokens": 3, "output_tokens": 2},
}  # fmt: skip
TEXT = {"type": "output_text", "text": "yes", "annotations": [], "logprobs": []}
RESPONSE: dict[str, Any] = {
    "id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "completed",
    "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
    "usage": {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5},
    "output": [
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "message", "id": "m_1", "role": "assistant", "status": "completed", "content": [TEXT]},
        {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": '{"a":1}'},
    ],
}  # fmt: skip


@asynccontextmanager
async def answering(protocol: Any, body: dict[str, Any]) -> AsyncIterator[Door]:
    """The door before a server that answers everything with this body."""

    async def answer(_: Any) -> Response:
        return Response(200, [("content-type", "application/json")], json.dumps(body).encode())

    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(upstream())
        server.behaviour = answer
        pool = {"name": "main", "endpoints": [server.url], "protocol": protocol}
        adapter = make(PoolConfig.model_validate(pool), Address(server.url))
        stack.push_async_callback(adapter.aclose)
        yield await stack.enter_async_context(door_of(Rig(config(pools=[pool]), {"main": [Before(adapter)]})))


async def test_a_whole_message_is_a_stream_of_its_blocks() -> None:
    async with answering("anthropic", MESSAGE) as d:
        async with d.anthropic.messages.stream(model="chat", messages=HI, max_tokens=9) as stream:
            texts = [text async for text in stream.text_stream]
            final = (await stream.get_final_message()).to_dict()
        assert texts == ["yes"]
        assert {name: final[name] for name in ("id", "content", "stop_reason")} == {
            name: MESSAGE[name] for name in ("id", "content", "stop_reason")
        }
        assert d.rig.log.lines[0].completion_tokens == 2


async def test_a_whole_response_is_a_stream_of_its_items() -> None:
    async with answering({"name": "openai", "responses": True}, RESPONSE) as d:
        async with d.openai.responses.stream(model="chat", input="hi") as stream:
            kinds = [(event.type, getattr(event, "delta", None)) async for event in stream]
            final = await stream.get_final_response()
        assert ("response.output_text.delta", "yes") in kinds
        assert ("response.function_call_arguments.delta", '{"a":1}') in kinds
        assert [item.to_dict()["id"] for item in final.output] == ["rs_1", "m_1", "fc_1"]
        assert final.output_text == "yes"
        assert d.rig.log.lines[0].completion_tokens == 2
