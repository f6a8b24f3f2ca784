"""A real vLLM and a real llama.cpp behind the adapter: the differences of each."""

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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
from config.protocols.openai import OpenAIProtocol
from loadtests.peers import llama_cpp as llama_cpp_peer
from loadtests.peers import vllm as vllm_peer
from tests.servers.llama_cpp import NAME, llama_cpp
from tests.servers.shared import shared
from tests.servers.started import Started
from tests.servers.vllm import vllm

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
