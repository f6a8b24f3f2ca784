"""Stored responses and conversations with OpenAI's official client, through the gateway's real door."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest

from adapters.fake import FakeAdapter, Script
from adapters.http1.server import Limits, Server
from adapters.requests import ChatRequest, GenerateRequest, ResponsesRequest
from config.schema.state import StoredResponsesConfig
from gateway.auth.scope import Scope
from gateway.features.stored.keeper import Keeper
from gateway.features.stored.store import ResponseDatabase, StoredTurn
from gateway.fronts.errors import openai_refusal
from gateway.process.client_fronts import client_fronts
from gateway.state.errors import StoreRefused
from tests.support.chats import HELLO, completion
from tests.support.doors import Door
from tests.support.gateways import Rig, config

pytestmark = pytest.mark.realtime  # the database has a thread


def received(d: Door) -> list[tuple[str, Any]]:
    """Roles and contents of the last request."""
    request = d.fake.calls[-1].request
    assert isinstance(request, ChatRequest)
    return [(message["role"], message["content"]) for message in json.loads(bytes(request.fields["messages"]))]


Opener = Callable[..., AbstractAsyncContextManager[Door]]
NATIVE: dict[str, Any] = {"pools": [
    {"name": "main", "endpoints": ["http://127.0.0.1:9"], "protocol": {"name": "openai", "responses": True}},
]}  # fmt: skip
TENANTS = [{"name": "acme", "models": ["*"]}, {"name": "beta", "models": ["*"]}]


@pytest.fixture
def door(tmp_path: Path) -> Opener:
    @asynccontextmanager
    async def open_door(*chunks: bytes, store: Any = "asked", **changes: Any) -> AsyncIterator[Door]:
        scripts = [Script(chunks=(body,)) for body in chunks] or [Script(chunks=HELLO)]
        rig = Rig(config(tenants=TENANTS, **changes), {"main": [FakeAdapter(*scripts)]})
        keeper = Keeper(f"sqlite:///{tmp_path}/state/state.db", StoredResponsesConfig(store=store), 1 << 20)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(keeper.aclose)
            stack.callback(asyncio.create_task(keeper.run()).cancel)
            server = Server(client_fronts(rig.core, keeper=lambda: keeper), Limits(), openai_refusal)
            host, port = await server.listen_tcp("127.0.0.1", 0)
            stack.push_async_callback(server.aclose)
            http = await stack.enter_async_context(aiohttp.ClientSession())
            yield Door(rig, f"http://{host}:{port}", stack, http)
        rig.assert_idle()

    return open_door


def stored(response: Any) -> object:
    """The `store` field of a response, which the client's type lacks."""
    return response.store


ONE, TWO, THREE = (completion(text) for text in ("One.", "Two.", "Three."))


async def test_a_stored_response_is_retrieved_listed_and_deleted(door: Opener) -> None:
    async with door(ONE) as d:
        made = await d.openai.responses.create(model="chat", input="hi", store=True, metadata={"a": "b"})
        assert stored(made) is True
        retrieved = await d.openai.responses.retrieve(made.id)
        assert retrieved.model_dump() == made.model_dump()
        (item,) = (await d.openai.responses.input_items.list(made.id)).data
        assert item.type == "message"
        assert (item.role, item.content[0].type) == ("user", "input_text")
        await d.openai.responses.delete(made.id)
        for gone in (d.openai.responses.retrieve, d.openai.responses.delete, d.openai.responses.input_items.list):
            with pytest.raises(openai.NotFoundError):
                await gone(made.id)


async def test_a_response_is_stored_only_on_request_or_by_default(door: Opener) -> None:
    async with door(ONE) as d:
        fields: Any
        for fields in ({}, {"store": False}):
            made = await d.openai.responses.create(model="chat", input="hi", **fields)
            assert stored(made) is False
            with pytest.raises(openai.NotFoundError):
                await d.openai.responses.retrieve(made.id)
    async with door(ONE, store="default") as d:
        made = await d.openai.responses.create(model="chat", input="hi")
        assert (await d.openai.responses.retrieve(made.id)).output_text == "One."


async def test_a_response_that_cannot_be_stored_stops_no_other(door: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    write = ResponseDatabase.write

    def picky(store: ResponseDatabase, turns: Sequence[StoredTurn]) -> None:
        if any(turn.response is not None and b"poison" in turn.response.input for turn in turns):
            raise StoreRefused("a text is refused")
        write(store, turns)

    monkeypatch.setattr(ResponseDatabase, "write", picky)
    async with door(ONE, TWO, THREE) as d:
        poison = [await d.openai.responses.create(model="chat", input="poison", store=True) for _ in range(2)]
        for id_ in [each.id for each in poison]:
            with pytest.raises(openai.NotFoundError, match="is not stored: the database refused it") as refused:
                await d.openai.responses.retrieve(id_)
            assert refused.value.code == "response_not_stored"
            with pytest.raises(openai.NotFoundError, match="is not stored"):
                await d.openai.responses.create(model="chat", input="x", previous_response_id=id_)
        made = await d.openai.responses.create(model="chat", input="hi", store=True)
        assert (await d.openai.responses.retrieve(made.id)).output_text == "Three."


async def test_ids_of_items_that_no_database_has_are_replaced(door: Opener) -> None:
    output = [{"type": "message", "role": "assistant", "content": [], "id": {"a": 1}}, {"type": "reasoning"}]
    answer = json.dumps({"id": "resp_1", "object": "response", "status": "completed", "output": output})
    async with door(answer.encode(), **NATIVE) as d:
        conversation = await d.openai.conversations.create()
        given: Any = [{"id": "a\0b", "role": "user", "content": "x"}]
        await d.openai.responses.create(model="chat", input=given, conversation=conversation.id)
        listed = (await d.openai.conversations.items.list(conversation.id)).data
        assert [str(item.id).split("_")[0] for item in listed] == ["rs", "msg", "msg"]


async def test_a_response_continues_the_previous_response(door: Opener) -> None:
    async with door(ONE, TWO, THREE) as d:
        first = await d.openai.responses.create(model="chat", input="1?", instructions="Be brief.", store=True)
        second = await d.openai.responses.create(model="chat", input="2?", previous_response_id=first.id, store=True)
        assert received(d) == [("user", "1?"), ("assistant", "One."), ("user", "2?")]
        third = await d.openai.responses.create(model="chat", input="3?", previous_response_id=second.id)
        assert [content for _, content in received(d)] == ["1?", "One.", "2?", "Two.", "3?"]
        assert (second.previous_response_id, third.previous_response_id, stored(third)) == (first.id, second.id, False)
        await d.openai.responses.delete(first.id)
        with pytest.raises(openai.BadRequestError) as refused:
            await d.openai.responses.create(model="chat", input="4?", previous_response_id=second.id)
        assert (refused.value.code, refused.value.param) == ("previous_response_not_found", "previous_response_id")


async def test_a_call_of_a_function_is_answered_by_the_next_response(door: Opener) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"x":1}'}}
    async with door(completion(None, "tool_calls", tool_calls=[call]), TWO) as d:
        tools: Any = [{"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": False}]
        first = await d.openai.responses.create(model="chat", input="1+1?", tools=tools, store=True)
        (called,) = first.output
        assert called.type == "function_call"
        assert (called.name, called.arguments) == ("add", '{"x":1}')
        output: Any = [{"type": "function_call_output", "call_id": "c1", "output": "2"}]
        last = await d.openai.responses.create(model="chat", input=output, previous_response_id=first.id, tools=tools)
        assert last.output_text == "Two."
        assert [role for role, _ in received(d)] == ["user", "assistant", "tool"]


def referring(response: Any, question: str) -> list[Any]:
    """What the AI SDK's default provider sends next: references in the place of what the response said."""
    return [
        *({"type": "item_reference", "id": item.id} for item in response.output),
        {"role": "user", "content": question},
    ]


async def test_references_are_the_tenant_s_own_stored_items(door: Opener) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    first = completion("Look.", "tool_calls", tool_calls=[call], reasoning_content="Hm.")
    async with door(first, TWO, THREE, ONE, store="default") as d:
        ask: Any = [{"role": "user", "content": "1?"}]
        one = await d.openai.responses.create(model="chat", input=ask)
        result = {"type": "function_call_output", "call_id": "c1", "output": "2"}
        given = [*ask, *referring(one, "")[:-1], result]
        two = await d.openai.responses.create(model="chat", input=given)
        assert [role for role, _ in received(d)] == ["user", "assistant", "tool"]
        last: Any = d.fake.calls[-1].request
        answer = json.loads(bytes(last.fields["messages"]))[1]
        assert (answer["content"], answer["reasoning_content"], len(answer["tool_calls"])) == ("Look.", "Hm.", 1)
        # References to items of several responses, and to an item of an input.
        items = (await d.openai.responses.input_items.list(two.id, order="asc")).data
        assert [item.type for item in items] == [
            "message",
            "reasoning",
            "message",
            "function_call",
            "function_call_output",
        ]
        items_again: Any = [{"type": "item_reference", "id": items[0].id}, *given[1:], *referring(two, "3?")]
        await d.openai.responses.create(model="chat", input=items_again, store=False)
        assert [content for _, content in received(d)] == ["1?", "Look.", "2", "Two.", "3?"]
        d.rig.hold(tenant="beta")
        with pytest.raises(openai.BadRequestError, match="`store: false`") as refused:
            await d.openai.responses.create(model="chat", input=items_again)
        assert (refused.value.code, refused.value.param) == ("item_not_found", "input[0]")
        d.rig.hold(tenant="acme", scope=Scope(models=("other",)))
        with pytest.raises(openai.APIStatusError):
            await d.openai.responses.create(model="chat", input=items_again)


async def test_references_to_items_of_a_server_of_responses_are_resolved(door: Opener) -> None:
    output = [{"type": "message", "role": "assistant", "content": [], "id": "msg_" + 48 * "a"}]
    answer = json.dumps({"id": "resp_1", "object": "response", "status": "completed", "output": output})
    async with door(answer.encode(), store="default", **NATIVE) as d:
        made = await d.openai.responses.create(model="chat", input="x")
        await d.openai.responses.create(model="chat", input=referring(made, "y"))
        last: Any = d.fake.calls[-1].request
        assert [item["id"] for item in json.loads(bytes(last.fields["input"]))[:1]] == [output[0]["id"]]


async def test_a_stream_is_stored_before_its_last_event(door: Opener) -> None:
    async with door() as d:
        async with d.openai.responses.stream(model="chat", input="hi", store=True) as stream:
            async for event in stream:
                if event.type == "response.completed":
                    retrieved = await d.openai.responses.retrieve(event.response.id)
                    assert (retrieved.output_text, stored(retrieved)) == ("Hello!", True)
        with pytest.raises(openai.BadRequestError):
            await d.openai.responses.retrieve(retrieved.id, stream=True)


async def test_stored_responses_are_private_to_a_tenant(door: Opener) -> None:
    async with door(ONE) as d:
        made = await d.openai.responses.create(model="chat", input="hi", store=True)
        conversation = await d.openai.conversations.create(items=[{"role": "user", "content": "secret"}])
        items = await d.openai.conversations.items.list(conversation.id)
        d.rig.hold(tenant="beta")  # from now on the key is another tenant's
        for path in (f"/responses/{made.id}", f"/responses/{made.id}/input_items", f"/conversations/{conversation.id}"):
            with pytest.raises(openai.NotFoundError):
                await d.openai.get(path, cast_to=object)
        for path in (
            f"/responses/{made.id}",
            f"/conversations/{conversation.id}",
            f"/conversations/{conversation.id}/items/{items.data[0].id}",
        ):
            with pytest.raises(openai.NotFoundError):
                await d.openai.delete(path, cast_to=object)
        continuation: Any
        for continuation in ({"previous_response_id": made.id}, {"conversation": conversation.id}):
            with pytest.raises(openai.APIStatusError) as refused:
                await d.openai.responses.create(model="chat", input="?", **continuation)
            assert refused.value.status_code in (400, 404)
        assert len(d.fake.calls) == 1
        d.rig.hold(tenant="acme")
        assert (await d.openai.responses.retrieve(made.id)).id == made.id


async def test_a_conversation_holds_the_items_of_its_responses(door: Opener) -> None:
    async with door(ONE, TWO) as d:
        conversations = d.openai.conversations
        made = await conversations.create(items=[{"role": "user", "content": "Hi."}], metadata={"topic": "x"})
        await d.openai.responses.create(model="chat", input="1?", conversation=made.id)
        answer = await d.openai.responses.create(model="chat", input="2?", conversation={"id": made.id}, store=True)
        assert answer.conversation is not None
        assert answer.conversation.id == made.id
        assert [content for _, content in received(d)] == ["Hi.\n\n1?", "One.", "2?"]
        items: list[Any] = [item async for item in await conversations.items.list(made.id, order="asc", limit=2)]
        assert len({item.id for item in items}) == len(items) == 5
        newest = (await conversations.items.list(made.id, limit=1)).data[0]
        assert newest.id == items[-1].id
        assert (await conversations.items.retrieve(items[1].id, conversation_id=made.id)).id == items[1].id
        await conversations.items.delete(items[0].id, conversation_id=made.id)
        added = await conversations.items.create(made.id, items=[{"role": "user", "content": "Bye."}])
        assert len(added.data) == 1
        assert len([item async for item in await conversations.items.list(made.id)]) == 5
        changed = await conversations.update(made.id, metadata={"topic": "y"})
        assert (await conversations.retrieve(made.id)).metadata == changed.metadata == {"topic": "y"}
        assert (await conversations.delete(made.id)).deleted
        with pytest.raises(openai.NotFoundError):
            await conversations.items.list(made.id)


async def test_stored_items_count_as_input(door: Opener) -> None:
    async with door(ONE, b'{"input_tokens": 3}') as d:
        made = await d.openai.responses.create(model="chat", input="hi", store=True)
        await d.openai.responses.input_tokens.count(model="chat", input="2?", previous_response_id=made.id)
        request: Any = d.fake.calls[-1].request
        messages = json.loads(bytes(request.chat.fields["messages"]))
        assert [message["content"] for message in messages] == ["hi", "One.", "2?"]


async def test_a_route_that_drops_store_stores_nothing(door: Opener) -> None:
    models = [{"name": "chat", "routes": [{"to": "main", "rewrite": {"drop": ["store"]}}]}]
    async with door(ONE, models=models) as d:
        made = await d.openai.responses.create(model="chat", input="hi", store=True)
        assert stored(made) is False
        with pytest.raises(openai.NotFoundError):
            await d.openai.responses.retrieve(made.id)


async def test_a_server_of_responses_stores_nothing_itself(door: Opener) -> None:
    body = {"object": "response", "status": "completed", "output": [], "store": False, "usage": None}
    event = b'data: {"type":"response.completed","response":%b}\n\n' % json.dumps({"id": "resp_2", **body}).encode()
    async with door(json.dumps({"id": "resp_theirs", **body}).encode(), event, **NATIVE) as d:
        made = await d.openai.responses.create(model="chat", input="hi", store=True)
        assert (made.id, stored(made)) == ("resp_theirs", True)
        request = d.fake.calls[0].request
        assert isinstance(request, ResponsesRequest)
        assert bytes(request.fields["store"]) == b"false"
        async for _ in await d.openai.responses.create(
            model="chat", input="2?", previous_response_id=made.id, store=True, stream=True
        ):
            pass
        assert isinstance(request := d.fake.calls[1].request, GenerateRequest)
        assert [item["content"][0]["text"] for item in json.loads(bytes(request.fields["input"]))] == ["hi", "2?"]
        assert (await d.openai.responses.retrieve("resp_2")).id == "resp_2"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"previous_response_id": 7, "store": True}, "previous_response_id"),
        ({"conversation": {"id": "x", "more": 1}, "store": True}, "conversation"),
        ({"conversation": "conv_1", "previous_response_id": "resp_1"}, "previous_response_id"),
        ({"store": True, "input": [7]}, "input"),
        ({"store": True, "background": True}, "background"),
    ],
)
async def test_an_invalid_field_is_named_and_no_upstream_is_called(
    door: Opener, fields: dict[str, Any], param: str
) -> None:
    async with door(ONE) as d:
        with pytest.raises(openai.BadRequestError) as refused:
            await d.openai.post("/responses", body={"model": "chat", "input": "hi", **fields}, cast_to=object)
        assert refused.value.param == param
        assert not d.fake.calls


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "limit=-1", "limit=%C2%B2", "order=up"])
async def test_a_page_that_cannot_be_is_refused(door: Opener, query: str) -> None:
    async with door(ONE) as d:
        made = await d.openai.conversations.create()
        with pytest.raises(openai.BadRequestError):
            await d.openai.get(f"/conversations/{made.id}/items?{query}", cast_to=object)
        with pytest.raises(openai.NotFoundError):
            await d.openai.conversations.items.list(made.id, after="msg_none")


async def test_a_scope_of_models_hides_stored_answers_of_other_models(door: Opener) -> None:
    models = [{"name": name, "routes": [{"to": "main"}]} for name in ("chat", "secret", "secret-2")]
    async with door(ONE, models=models) as d:

        async def ask(model: str, **fields: Any) -> dict[str, Any]:
            response = await d.send("POST", "/v1/responses", {"model": model, "input": "x", "store": True, **fields})
            return {**await response.json(), "status": response.status}

        async def read(path: str, id_: str) -> tuple[int, str]:
            response = await d.send("GET", path.format(id_))
            return response.status, (await response.text()).replace(id_, "ID")

        talk = (await (await d.send("POST", "/v1/conversations", {})).json())["id"]
        own, foreign = [(await ask(model))["id"] for model in ("chat", "secret")]
        assert (await ask("secret", conversation=talk))["status"] == 200
        d.rig.hold(scope=Scope(models=["chat", "secret-*"]))
        paths = ("/v1/responses/{}", "/v1/responses/{}/input_items")
        assert [(await read(path, own))[0] for path in paths] == [200, 200]
        for path in paths:
            assert await read(path, foreign) == await read(path, "resp_unknown")
        for path in ("/v1/conversations/{}", "/v1/conversations/{}/items"):
            assert await read(path, talk) == await read(path, "conv_unknown")
        assert (await ask("chat", previous_response_id=own))["status"] == 200
        for field, id_, unknown in (("previous_response_id", foreign, "resp_u"), ("conversation", talk, "conv_u")):
            refused, as_unknown = [json.dumps(await ask("chat", **{field: name})) for name in (id_, unknown)]
            assert refused.replace(id_, "ID") == as_unknown.replace(unknown, "ID")
        assert (await d.send("DELETE", f"/v1/responses/{foreign}")).status == 404
        d.rig.hold(scope=Scope(models=["*"]))
        assert (await read("/v1/responses/{}", foreign))[0] == 200
