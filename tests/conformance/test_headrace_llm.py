"""Our LLM engine."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest

from adapters import registry
from adapters.call import Call
from adapters.conformance import requests
from adapters.conformance.bench import gauge
from adapters.conformance.subject import Subject, pool
from adapters.registry import Address
from adapters.types import Deadline
from adapters.wire.openai import chat as openai
from tests.conformance.recorded import conforms, every_feature
from tests.conformance.subjects import chatting, no_tensors
from tests.servers.llm import ENCODER, NAME, Llm, llm


@pytest.fixture(scope="module")
def running() -> Iterator[Llm]:
    with llm() as server:
        yield server


def subject(server: Llm) -> Subject:
    return chatting(
        NAME,
        system="Headrace LLM engine",
        version="this one",
        pool=pool("openai", server.url),
        pieces=5,
        long=requests.chat(NAME, stream=True, max_tokens=1900, ignore_eos=True),
        running=gauge(f"{server.url}/metrics", "headrace_llm_num_requests_running"),
        signals=f"{server.url}/metrics",
        lacks={"load and unload": "Its one model is fixed at the start.", **no_tensors("OpenAI's protocol")},
    )


@pytest.fixture(scope="module")
def encoding() -> Iterator[Llm]:
    with llm(("--dtype", "float32", "--threads", "1"), ENCODER) as server:
        yield server


def embeddings(server: Llm) -> Subject:
    """An encoder in it."""
    return replace(
        subject(server),
        system="Headrace LLM engine, embeddings",
        right=requests.embedding(NAME, "A headrace brings the river to the turbines.", "And back."),
        stream=None,
        mistake=requests.embedding(NAME, ""),
        long=requests.embedding(NAME, *["water " * 200] * 1000),
        unseen={"stream": "A vector is sent whole."},
    )


def one_kind(server: Llm, only: str) -> Subject:
    """The same engine, with requests for features that it declares unsupported."""
    options = {"chat_template": "chatml"} if only == "completions" else {}
    make_request = requests.chat if only == "completions" else requests.completion
    return replace(
        subject(server),
        system=f"OpenAI's protocol, {only} only",
        version="Headrace LLM engine",
        pool=pool({"name": "openai", "only": only, **options}, server.url),
        right=make_request(NAME),
        stream=make_request(NAME, stream=True),
        mistake=make_request(NAME, temperature="warm"),
        long=make_request(NAME, stream=True, max_tokens=1900, ignore_eos=True),
    )


@every_feature
async def test_conforms(running: Llm, feature: str) -> None:
    await conforms(subject(running), feature)


@every_feature
async def test_embeddings_conform(encoding: Llm, feature: str) -> None:
    await conforms(embeddings(encoding), feature)


@every_feature
@pytest.mark.parametrize("only", ["completions", "chats"])
async def test_one_kind_conforms(running: Llm, only: str, feature: str) -> None:
    await conforms(one_kind(running, only), feature)


async def test_a_chat_made_of_a_completion_is_the_chat_itself(running: Llm) -> None:
    """The engine renders the model's own template, and the gateway renders its copy of it."""
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Name three colours."}]
    body = {"model": NAME, "messages": messages, "max_tokens": 16, "temperature": 0}
    bodies = []
    for made in (subject(running), one_kind(running, "completions")):
        adapter = registry.make(made.pool, Address(made.url))
        try:
            deadline = Deadline(asyncio.get_running_loop().time() + 60, 60, 60)
            answer = await adapter.call(openai.decode_chat(msgspec.json.encode(body)), Call(deadline))
            bodies.append(msgspec.json.decode(answer.body or b""))
        finally:
            await adapter.aclose()
    own, translated = bodies
    assert translated["choices"][0]["message"]["content"] == own["choices"][0]["message"]["content"] != ""
    counts = ("prompt_tokens", "completion_tokens")
    assert [translated["usage"][one] for one in counts] == [own["usage"][one] for one in counts]
    assert translated["choices"][0]["finish_reason"] == own["choices"][0]["finish_reason"]
