"""Adapters as clients see them: models of their own names, each loaded for its requests."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
import torch

from runtimes.llm.engine.adapters import AdapterPool
from runtimes.llm.engine.async_engine import Engine
from runtimes.llm.sequence import StepAdapter
from tests.runtimes.llm.lora import random_adapter
from tests.runtimes.llm.native.models import random_model, shape
from tests.runtimes.llm.server_fixtures import MODEL, Running, get, post, serving, until_idle
from tests.support.conditions import until
from tests.support.llm_engines import answers, make_engine

NAMES = ("red", "green", "blue", "white", "broken")
SHAPE = shape(vocab_size=258, eos_token_ids=frozenset({257}))
PROMPT = [104, 101, 108, 108, 111] * 8
TOKENS = 12
SEEDS = {name: seed for seed, name in enumerate(NAMES)}


def engine() -> Engine:
    return make_engine(random_model(SHAPE, torch.float32), executor="torch", max_num_seqs=8)


def pool_of(whole: Engine, most: int) -> AdapterPool:
    def load(source: str) -> StepAdapter:
        if source == "/srv/broken":
            raise ValueError("adapter_model.safetensors: tensor q is of a module that this model does not have")
        assert whole.prepared is not None
        return whole.prepared(random_adapter(SHAPE, 4, seed=SEEDS[source.removeprefix("/srv/")]))

    return AdapterPool({name: f"/srv/{name}" for name in NAMES}, most, load)


@asynccontextmanager
async def adapted(most: int = 2) -> AsyncIterator[tuple[Running, AdapterPool]]:
    whole = engine()
    pool = pool_of(whole, most)
    async with serving(whole=whole, adapters=pool) as running:
        yield running, pool
        await until_idle(running.engine)
        for name in NAMES[:-1]:  # none is in use
            (await pool.lease(name)).release()


def expected(name: str) -> list[int]:
    """The greedy answer of an engine that has no other request."""
    whole = engine()
    if name == MODEL:
        return answers(whole, [PROMPT], TOKENS)[0]
    assert whole.prepared is not None
    return answers(whole, [PROMPT], TOKENS, adapter=whole.prepared(random_adapter(SHAPE, 4, seed=SEEDS[name])))[0]


def body(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "model": name, "prompt": PROMPT, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True,
        "return_token_ids": True, **fields,
    }  # fmt: skip


async def completed(running: Running, name: str, **fields: Any) -> tuple[int, Any]:
    status, _, answer = await post(running, "/v1/completions", body(name, **fields))
    return status, answer


async def test_each_name_is_a_model() -> None:
    async with adapted() as (running, _):
        cards = json.loads((await get(running, "/v1/models"))[1])["data"]
        assert [(card["id"], card.get("parent")) for card in cards] == [
            (MODEL, None),
            *((name, MODEL) for name in NAMES),
        ]
        status, card = await get(running, "/v1/models/red")
        assert (status, json.loads(card)["id"]) == (200, "red")
        status, answer = await completed(running, "pink")
        assert (status, answer["error"]["code"]) == (404, "model_not_found")
        assert "`parrot`, `red`" in answer["error"]["message"]


async def test_a_name_selects_its_adapter() -> None:
    async with adapted() as (running, _):
        given: dict[str, Any] = {}
        for name in (MODEL, "red", "blue", "red"):
            status, answer = await completed(running, name)
            assert (status, answer["model"]) == (200, name), answer
            assert answer["choices"][0]["token_ids"] == expected(name)
            given[name] = answer
        prints = {name: answer["system_fingerprint"] for name, answer in given.items()}
        assert len(set(prints.values())) == 3
        assert all(fingerprint.startswith(prints[MODEL]) for fingerprint in prints.values())


async def test_an_adapter_that_cannot_be_loaded_is_its_requests_error_alone() -> None:
    async with adapted() as (running, _):
        stream, plain = await asyncio.gather(completed(running, "broken", stream=True), completed(running, "red"))
        assert plain[0] == 200
        assert (stream[0], stream[1]["error"]["code"]) == (400, "adapter_not_loadable")
        assert stream[1]["error"]["message"] == (
            "The adapter `broken` cannot be loaded: adapter_model.safetensors: tensor q is of a module that this model"
            " does not have."
        )


async def test_more_adapters_than_fit_are_served_in_turn() -> None:
    async with adapted(most=2) as (running, pool):
        names = [*NAMES[:-1], MODEL] * 5
        given = await asyncio.gather(*[completed(running, name) for name in names])
        for name, (status, answer) in zip(names, given, strict=True):
            assert (status, answer["choices"][0]["token_ids"]) == (200, expected(name))
        assert len(pool.names) <= 2


@pytest.mark.parametrize("most", [1])
async def test_a_client_that_leaves_makes_room(most: int) -> None:
    async with adapted(most) as (running, pool):
        async with aiohttp.ClientSession() as session:
            url = f"{running.url}/v1/completions"
            async with session.post(url, json=body("red", stream=True, max_tokens=400)) as response:
                await response.content.readany()
                assert pool.names == ["red"]
                waiting = asyncio.ensure_future(completed(running, "blue"))
        assert (await waiting)[0] == 200


async def test_an_answer_continues_with_its_adapter() -> None:
    async with adapted() as (running, _):
        whole = expected("red")
        for cut in (1, 5, TOKENS):
            assert await _streamed(running, "red", continue_token_ids=whole[:cut]) == whole[cut:]


async def _streamed(running: Running, name: str, **fields: Any) -> list[int]:
    """The tokens of a stream."""
    url = f"{running.url}/v1/completions"
    async with aiohttp.ClientSession() as session, session.post(url, json=body(name, stream=True, **fields)) as answer:
        events = (await answer.read()).split(b"\n\n")
    assert answer.status == 200, events
    chunks = [json.loads(event.removeprefix(b"data: ")) for event in events if b"{" in event]
    return [token for chunk in chunks for token in chunk["choices"][0].get("token_ids", ())]


async def test_several_answers_and_prompts_of_one_request() -> None:
    async with adapted() as (running, _):
        _, answer = await completed(running, "red", prompt=[PROMPT, PROMPT], n=2)
        assert [choice["token_ids"] for choice in answer["choices"]] == [expected("red")] * 4


async def test_a_request_that_is_refused_holds_no_adapter() -> None:
    async with adapted(most=1) as (running, _):
        status, _ = await completed(running, "red", logit_bias={"900": 1})
        assert status == 400
        assert (await completed(running, "blue"))[0] == 200


async def test_vectors_are_the_adapters() -> None:
    async with adapted() as (running, _):
        vectors: list[Sequence[float]] = []
        for name in (MODEL, "red"):
            status, _, answer = await post(running, "/v1/embeddings", {"model": name, "input": PROMPT})
            assert (status, answer["model"]) == (200, name)
            vectors.append(answer["data"][0]["embedding"])
        assert max(abs(a - b) for a, b in zip(*vectors, strict=True)) > 0.01


async def test_an_adapter_is_loaded_beside_the_loop() -> None:
    """While one loads, other requests are answered."""
    whole, loads = engine(), asyncio.Event()
    loop = asyncio.get_running_loop()
    done = asyncio.run_coroutine_threadsafe

    def load(source: str) -> StepAdapter:
        loop.call_soon_threadsafe(loads.set)
        done(answered.wait(), loop).result(timeout=300)
        assert whole.prepared is not None
        return whole.prepared(random_adapter(SHAPE, 4))

    answered = asyncio.Event()
    async with serving(whole=whole, adapters=AdapterPool({"red": "/srv/red"}, 1, load)) as running:
        slow = asyncio.ensure_future(completed(running, "red"))
        await until(loads.is_set)
        assert (await completed(running, MODEL))[0] == 200
        assert not slow.done()
        answered.set()
        assert (await slow)[0] == 200
