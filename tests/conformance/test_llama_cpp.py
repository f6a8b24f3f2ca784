"""A real llama.cpp."""

import pytest

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
    return chatting(
        NAME,
        system="llama.cpp",
        version=VERSION,
        pool=pool({"name": "openai", "dialect": "llama.cpp"}, server.url()),
        running=gauge(f"{server.url()}/metrics", "llamacpp:requests_processing"),
        signals=f"{server.url()}/metrics",
        signals_server="llama.cpp",
        lacks={
            "unknown model": "It has one model, and accepts any name for it.",
            "load and unload": "Only its router loads and unloads; a server with one model is fixed.",
            **no_tensors("OpenAI's protocol"),
        },
    )


@every_feature
async def test_conforms(running: Started, feature: str) -> None:
    await conforms(subject(running), feature)
