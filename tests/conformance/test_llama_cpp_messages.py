"""llama.cpp's own server, by Anthropic's Messages, which it speaks beside OpenAI's API."""

import pytest

from adapters.conformance import requests
from adapters.conformance.bench import gauge
from adapters.conformance.subject import Subject, pool
from tests.conformance.recorded import conforms, every_feature
from tests.conformance.subjects import chatting, no_tensors
from tests.servers.llama_cpp import NAME, VERSION, llama_cpp
from tests.servers.shared import shared
from tests.servers.started import Started

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800, func_only=True)]


@pytest.fixture(scope="module")
def running() -> Started:
    return shared(llama_cpp)


def subject(server: Started) -> Subject:
    metrics = f"{server.url()}/metrics"
    return chatting(
        NAME,
        system="llama.cpp, Messages",
        version=f"b{VERSION}",
        pool=pool("anthropic", server.url(), probe={"path": "/health"}),
        pieces=5,
        long=requests.chat(NAME, "Write all numbers from one to one thousand, as words.", stream=True, max_tokens=900),
        running=gauge(metrics, "llamacpp:requests_processing"),
        signals=metrics,
        lacks={
            "load and unload": "Its one model is fixed at the start.",
            "unknown model": "It has one model, and accepts any name for it.",
            "probe": "It also speaks OpenAI's API, which the probe reports.",
            **no_tensors("Anthropic's protocol"),
        },
    )


@every_feature
async def test_conforms(running: Started, feature: str) -> None:
    await conforms(subject(running), feature)
