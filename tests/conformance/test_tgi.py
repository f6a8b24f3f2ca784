"""Text Generation Inference: its own API, and its version of OpenAI's."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from adapters.conformance import requests
from adapters.conformance.acts import Refusing
from adapters.conformance.bench import gauge
from adapters.conformance.subject import Subject, pool
from tests.conformance.recorded import conforms, every_feature
from tests.conformance.subjects import chatting, no_tensors
from tests.servers.stand_ins.tgi import VERSION, Tgi, tgi

pytestmark = pytest.mark.plain


def own(server: Tgi) -> Subject:
    return chatting(
        "parrot",
        system="Text Generation Inference",
        version=f"API document {VERSION}",
        how="conformance server",
        pool=pool({"name": "tgi", "chat_template": "chatml"}, server.url),
        probed_as="openai",
        mistake=requests.chat("parrot", stop=list("abcde")),
        long=requests.chat("parrot", "word " * 500, stream=True, max_tokens=600),
        running=gauge(f"{server.url}/metrics", "tgi_batch_current_size"),
        signals=f"{server.url}/metrics",
        signals_server="tgi",
        full=(Refusing(429),),
        lacks={
            "unknown model": "It has one model, and accepts any name for it.",
            "load and unload": "Its one model is fixed at the start.",
            **no_tensors("Its API"),
        },
    )


def openai(server: Tgi) -> Subject:
    return replace(own(server), system="Text Generation Inference, OpenAI", pool=pool("openai", server.url))


@every_feature
@pytest.mark.parametrize("wire", [own, openai])
async def test_conforms(wire: Callable[[Tgi], Subject], feature: str) -> None:
    async with tgi() as server:
        server.gap = 0.01
        await conforms(wire(server), feature)
