"""A real vLLM and a real llama.cpp behind the adapter: the differences of each."""

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import BackendError, CallerError, ContextTooLong, NotThere
from adapters.http1.client import Client
from adapters.requests import AppRequest, ModelOrder, ModelRequest
from adapters.types import Deadline
from adapters.upstreams.openai.client import OpenAIAdapter
from adapters.wire import signals
from adapters.wire.openai import chat as wire
from adapters.wire.openai import model_field as named
from config.schema.protocols.language import OpenAIProtocol
from gateway.features.scaling.sleeping import HttpSleepOrders
from loadtests.peers import llama_cpp as llama_cpp_peer
from loadtests.peers import vllm as vllm_peer
from tests.servers.llama_cpp import NAME, llama_cpp
from tests.servers.shared import shared
from tests.servers.started import Started
from tests.servers.vllm import vllm
from tests.support.gateways import config
from tests.support.processes import gateway
from tests.support.sleeping_vllm import configuration as sleeping

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800, func_only=True)]
PATIENCE = 300.0


@pytest.fixture(scope="module")
def real_vllm() -> Started:
    return shared(vllm)


@pytest.fixture(scope="module")
def real_llama_cpp() -> Started:
    return shared(llama_cpp)


@asynccontextmanager
async def before(server: Started) -> AsyncIterator[OpenAIAdapter]:
    """An adapter without a configured dialect, which detects it."""
    options = OpenAIProtocol(passes=("tokenize",))
    adapter = OpenAIAdapter(Client(server.url()), options=options)
    await adapter.probe(PATIENCE)
    yield adapter
    await adapter.aclose()


async def call(adapter: OpenAIAdapter, request: ModelRequest) -> Answer:
    now = asyncio.get_running_loop().time()
    return await adapter.call(request, Call(Deadline(now + PATIENCE, PATIENCE, PATIENCE)))


def chat(model: str = NAME, text: str = "hi", **fields: Any) -> ModelRequest:
    body = {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 4, **fields}
    return wire.decode_chat(json.dumps(body).encode())


def tokenize(**fields: Any) -> AppRequest:
    body = json.dumps({"model": NAME, **fields}).encode()
    return AppRequest(model=NAME, path="/tokenize", content_type="application/json", body=body, codec=named.CODEC)


def load_of(server: Started, kind: str) -> signals.ServerLoad:
    with urllib.request.urlopen(f"{server.url()}/metrics", timeout=PATIENCE) as page:
        report = signals.read(page.read(), kind)
    assert report is not None
    return report


async def test_vllm(real_vllm: Started) -> None:
    async with before(real_vllm) as adapter:
        assert (await call(adapter, chat())).usage.exact
        with pytest.raises(ContextTooLong):
            await call(adapter, chat(text="word " * vllm_peer.CONTEXT))
        with pytest.raises(NotThere):
            await call(adapter, chat(model="nobody"))
        with pytest.raises(CallerError):
            await call(adapter, chat(temperature=-1))
        tokenized = json.loads((await call(adapter, tokenize(prompt="hi there"))).body or b"")
        assert tokenized["count"] == len(tokenized["tokens"]) > 0
        report = load_of(real_vllm, "auto")
        assert (report.running, report.waiting) == (0, 0)
        assert report.block_size > 0
        await call(adapter, ModelOrder(model=NAME, order="unload"))
        with pytest.raises(BackendError, match="sleeps"):
            await adapter.probe(PATIENCE)
        await call(adapter, ModelOrder(model=NAME, order="load"))
        await adapter.probe(PATIENCE)


@pytest.mark.parametrize("level", [1, 2])
async def test_vllm_sleeps_without_requests_and_wakes_for_them(real_vllm: Started, tmp_path: Path, level: int) -> None:
    """On the CPU vLLM releases no memory; its state and its calls are those of a GPU."""
    written = sleeping([real_vllm.url()], min=0, max=1, idle="2s", sleep=level)
    written["pools"][0]["model"] = NAME
    async with gateway(tmp_path, written) as g:
        key = await g.demo_key()
        for _ in range(2):
            await g.until("s['replicas'][0]['asleep'] == 1 and s['replicas'][0]['replicas'] == 0")
            status, body = await g.chat(key, max_tokens=8)
            assert status == 200, body
            assert body["usage"]["completion_tokens"] > 0
        state = await g.until("s['replicas'][0]['asleep'] == 1")
        assert state["replicas"][0]["start_seconds"] > 0
    await HttpSleepOrders(lambda: config().pools[0]).wake(real_vllm.url(), level)
    async with before(real_vllm) as adapter:
        assert (await call(adapter, chat())).usage.exact


async def test_llama_cpp(real_llama_cpp: Started) -> None:
    async with before(real_llama_cpp) as adapter:
        assert (await call(adapter, chat())).usage.exact
        with pytest.raises(ContextTooLong):
            await call(adapter, chat(text="word " * llama_cpp_peer.CONTEXT))
        with pytest.raises(CallerError):
            await call(adapter, chat(temperature="warm"))
        tokenized = json.loads((await call(adapter, tokenize(content="hi there"))).body or b"")
        assert len(tokenized["tokens"]) > 0
        assert load_of(real_llama_cpp, "llama.cpp").running == 0
