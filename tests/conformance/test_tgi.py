"""Text Generation Inference: its own API, and its version of OpenAI's."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest

from adapters.conformance import requests
from adapters.conformance.acts import Refusing
from adapters.conformance.metrics import gauge
from adapters.conformance.subject import Subject, pool
from tests.conformance.recorded import conforms, every_feature
from tests.servers.stand_ins.tgi import VERSION, Tgi, tgi

NO_TENSORS = "Its API has no tensors."
NO_ORDERS = "Its one model is fixed at the start."
ONE_MODEL = "It has one model, and accepts any name for it."
LONG = "word " * 500


@pytest.fixture
async def running() -> AsyncIterator[Tgi]:
    async with tgi() as server:
        server.gap = 0.01
        yield server


def own(server: Tgi) -> Subject:
    return Subject(
        system="Text Generation Inference",
        version=f"API document {VERSION}",
        how="conformance server",
        pool=pool({"name": "tgi", "chat_template": "chatml"}, server.url),
        probed_as="openai",
        right=requests.chat("parrot"),
        is_right=requests.has_text,
        stream=requests.chat("parrot", stream=True),
        pieces=3,
        mistake=requests.chat("parrot", stop=list("abcde")),
        long=requests.chat("parrot", LONG, stream=True, max_tokens=600),
        running=gauge(f"{server.url}/metrics", "tgi_batch_current_size"),
        signals=f"{server.url}/metrics",
        signals_server="tgi",
        full=(Refusing(429),),
        lacks={
            "unknown model": ONE_MODEL,
            "metadata": NO_TENSORS,
            "readiness": NO_TENSORS,
            "load and unload": NO_ORDERS,
        },
    )


def openai(server: Tgi) -> Subject:
    return replace(own(server), system="Text Generation Inference, OpenAI", pool=pool("openai", server.url))


@every_feature
@pytest.mark.parametrize("wire", [own, openai])
async def test_conforms(running: Tgi, wire: Callable[[Tgi], Subject], feature: str) -> None:
    await conforms(wire(running), feature)
