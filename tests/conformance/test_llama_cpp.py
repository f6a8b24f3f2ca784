"""A real llama.cpp."""

import pytest

from adapters.conformance import requests
from adapters.conformance.metrics import gauge
from adapters.conformance.subject import Subject, pool
from tests.conformance.recorded import conforms, every_feature
from tests.servers.llama_cpp import NAME, VERSION, llama_cpp
from tests.servers.shared import shared
from tests.servers.started import Started

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800, func_only=True)]
NO_TENSORS = "OpenAI's protocol has no tensors."


@pytest.fixture(scope="module")
def running() -> Started:
    return shared(llama_cpp)


def subject(server: Started) -> Subject:
    return Subject(
        system="llama.cpp",
        version=VERSION,
        pool=pool({"name": "openai", "dialect": "llama.cpp"}, server.url()),
        right=requests.chat(NAME, max_tokens=8),
        is_right=requests.has_text,
        stream=requests.chat(NAME, stream=True, max_tokens=16),
        pieces=3,
        mistake=requests.chat(NAME, temperature="warm"),
        long=requests.chat(NAME, stream=True, max_tokens=1500, ignore_eos=True),
        running=gauge(f"{server.url()}/metrics", "llamacpp:requests_processing"),
        signals=f"{server.url()}/metrics",
        signals_server="llama.cpp",
        lacks={
            "unknown model": "It has one model, and accepts any name for it.",
            "metadata": NO_TENSORS,
            "readiness": NO_TENSORS,
            "load and unload": "Only its router loads and unloads; a server with one model is fixed.",
        },
    )


@every_feature
async def test_conforms(running: Started, feature: str) -> None:
    await conforms(subject(running), feature)
