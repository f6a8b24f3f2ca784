"""Our LLM engine."""

from collections.abc import Iterator

import pytest

from adapters.conformance import asks
from adapters.conformance.metrics import gauge
from adapters.conformance.subject import Subject, pool
from tests.conformance.kept import conforms, every_feature
from tests.servers.llm import NAME, Llm, llm

NO_TENSORS = "OpenAI's protocol tells of no tensors."
NO_ORDERS = "The engine has the one model that it was started with."


@pytest.fixture(scope="module")
def running() -> Iterator[Llm]:
    with llm() as server:
        yield server


def subject(server: Llm) -> Subject:
    return Subject(
        system="Headrace LLM engine",
        version="this one",
        pool=pool("openai", server.url),
        right=asks.chat(NAME),
        is_right=asks.says_something,
        stream=asks.chat(NAME, stream=True),
        pieces=5,
        mistake=asks.chat(NAME, temperature="warm"),
        long=asks.chat(NAME, stream=True, max_tokens=1900, ignore_eos=True),
        running=gauge(f"{server.url}/metrics", "headrace_llm_num_requests_running"),
        signals=f"{server.url}/metrics",
        lacks={"metadata": NO_TENSORS, "readiness": NO_TENSORS, "load and unload": NO_ORDERS},
    )


@every_feature
async def test_conforms(running: Llm, feature: str) -> None:
    await conforms(subject(running), feature)
