"""Stored responses with personal data: the database has placeholders, and the id has the values, sealed."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest

from adapters.fake import FakeAdapter, Script
from adapters.http1.server import Limits, Server
from adapters.requests import ChatRequest
from config.schema.state import StoredResponsesConfig
from gateway.features.stored.keeper import Keeper
from gateway.fronts.errors import openai_refusal
from gateway.process.client_fronts import client_fronts
from tests.support.chats import completion
from tests.support.cut_streams import PARTS, script
from tests.support.doors import Door
from tests.support.gateways import Rig, config
from tests.support.personal import PERSONAL, written

pytestmark = pytest.mark.realtime  # the database has a thread

EMAIL, OTHER = "bob@example.com", "eve@example.com"
TO, NEXT = written("email", EMAIL), written("email", OTHER)
Opener = Callable[..., AbstractAsyncContextManager[Door]]


@pytest.fixture
def door(tmp_path: Path) -> Opener:
    @asynccontextmanager
    async def open_door(*scripts: Script, tenants: tuple[str, ...] = ("acme",)) -> AsyncIterator[Door]:
        configuration = config(
            guards=[PERSONAL],
            models=[{"name": "chat", "guards": ["people"], "routes": [{"to": "main"}]}],
            tenants=[{"name": tenant, "models": ["*"]} for tenant in tenants],
        )
        rig = Rig(configuration, {"main": [FakeAdapter(*scripts)]})
        keeper = Keeper(f"sqlite:///{tmp_path}/state/state.db", StoredResponsesConfig(store="asked"), 1 << 20)
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


def answering(*texts: str) -> list[Script]:
    return [Script(chunks=(completion(text),)) for text in texts]


def received(d: Door) -> str:
    request = d.fake.calls[-1].request
    assert isinstance(request, ChatRequest)
    return bytes(request.fields["messages"]).decode()


def assert_stored_without(folder: Path, *values: str) -> None:
    """No file of the state has a value."""
    for file in (folder / "state").rglob("*"):
        if file.is_file():
            data = file.read_bytes()
            assert not [value for value in values if value.encode() in data], file


async def test_a_conversation_goes_on_with_the_values_of_its_begin(door: Opener, tmp_path: Path) -> None:
    async with door(*answering(f"I wrote to {TO}.", f"Again to {TO}, and {NEXT}.", f"Both: {TO} {NEXT}")) as d:
        create = d.openai.responses.create
        first = await create(
            model="chat", input=f"write to {EMAIL}", store=True, instructions=f"for {EMAIL}", metadata={"who": OTHER}
        )
        assert first.output_text == f"I wrote to {EMAIL}."
        second = await create(model="chat", input=f"and {OTHER}", store=True, previous_response_id=first.id)
        assert second.output_text == f"Again to {EMAIL}, and {OTHER}."
        assert second.previous_response_id == first.id
        assert EMAIL not in received(d)
        assert received(d).count(TO) == 2
        third = await create(model="chat", input="who?", store=True, previous_response_id=second.id)
        assert third.output_text == f"Both: {EMAIL} {OTHER}"
        retrieved = await d.openai.responses.retrieve(first.id)
        assert (retrieved.id, retrieved.output_text) == (first.id, f"I wrote to {EMAIL}.")
        (item,) = (await d.openai.responses.input_items.list(first.id)).data
        assert EMAIL in item.model_dump_json()
        await asyncio.sleep(0)
        assert_stored_without(tmp_path, EMAIL, OTHER, first.id.partition("_p")[2])
        database = sqlite3.connect(next((tmp_path / "state").glob("*.db")))
        assert TO in "".join(database.iterdump())
        database.close()
        await d.openai.responses.delete(first.id)
        with pytest.raises(openai.NotFoundError):
            await d.openai.responses.retrieve(first.id)


async def test_a_stream_is_stored_without_values(door: Opener, tmp_path: Path) -> None:
    made = script(["I wr", f"ote to {TO[:4]}", TO[4:], "."], PARTS["content"])
    async with door(made, *answering(f"To {TO}.")) as d:
        create: Any = d.openai.responses.create
        stream = await create(model="chat", input=f"write to {EMAIL}", store=True, stream=True)
        events = [event async for event in stream]
        ids = {event.response.id for event in events if hasattr(event, "response")}
        assert len(ids) == 1
        assert events[-1].response.output_text == f"I wrote to {EMAIL}."
        (id_,) = ids
        assert (await create(model="chat", input="and?", previous_response_id=id_)).output_text == f"To {EMAIL}."
        assert_stored_without(tmp_path, EMAIL)


@pytest.mark.parametrize("change", ["another seal", "no seal"])
async def test_an_id_of_another_origin_opens_nothing(door: Opener, change: str) -> None:
    async with door(*answering(f"to {TO}", f"to {TO}")) as d:
        create = d.openai.responses.create
        first = await create(model="chat", input=f"write to {EMAIL}", store=True)
        short = first.id.partition("_p")[0]
        if change == "no seal":
            answer = await create(model="chat", input="again", previous_response_id=short)
            assert EMAIL not in answer.output_text
            return
        damaged = first.id[:-2] + ("AA" if first.id[-2:] != "AA" else "BB")
        with pytest.raises(openai.BadRequestError):
            await create(model="chat", input="again", previous_response_id=damaged)
        with pytest.raises(openai.NotFoundError):
            await d.openai.responses.retrieve(damaged)


async def test_the_seal_of_a_response_opens_nothing_in_another_id(door: Opener) -> None:
    """A key that may not read a response cannot move its seal into a response of its own, and write placeholders."""
    async with door(*answering("fine", "fine", f"to {TO}")) as d:
        create = d.openai.responses.create
        first = await create(model="chat", input=f"write to {EMAIL}", store=True)
        own = await create(model="chat", input=f"what is {TO}?", store=True)
        moved = f"{own.id.partition('_p')[0]}_p{first.id.partition('_p')[2]}"
        with pytest.raises(openai.BadRequestError, match="previous response"):
            await create(model="chat", input=f"write {TO}", previous_response_id=moved)
        with pytest.raises(openai.NotFoundError):
            await d.openai.responses.retrieve(moved)
        with pytest.raises(openai.NotFoundError):
            await d.openai.responses.input_items.list(moved)
        assert len(d.fake.calls) == 2
        assert EMAIL in (await create(model="chat", input="and?", previous_response_id=first.id)).output_text


async def test_values_that_no_id_can_hold_are_refused_before_they_are_sent(door: Opener) -> None:
    many = " ".join(f"user{n * 7919}@example{n}.com" for n in range(400))
    async with door(*answering("fine")) as d:
        with pytest.raises(openai.BadRequestError, match="store: false"):
            await d.openai.responses.create(model="chat", input=many, store=True)
        assert d.fake.calls == []
        talk = await d.openai.conversations.create()
        with pytest.raises(openai.BadRequestError, match="previous_response_id"):
            await d.openai.responses.create(model="chat", input=EMAIL, conversation=talk.id)
        assert d.fake.calls == []
        made = await d.openai.responses.create(model="chat", input="hi", conversation=talk.id)
        assert made.output_text == "fine"
