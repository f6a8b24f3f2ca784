"""A real vLLM, on the CPU."""

import pytest

from adapters.conformance import requests
from adapters.conformance.metrics import gauge
from adapters.conformance.subject import Subject, pool
from loadtests.peers.vllm import VERSION
from tests.conformance.recorded import conforms, every_feature
from tests.servers.shared import shared
from tests.servers.started import Started
from tests.servers.vllm import NAME, vllm

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800, func_only=True)]
NO_TENSORS = "OpenAI's protocol has no tensors."


@pytest.fixture(scope="module")
def running() -> Started:
    return shared(vllm)


def subject(server: Started) -> Subject:
    return Subject(
        system="vLLM",
        version=f"{VERSION}, CPU",
        pool=pool({"name": "openai", "dialect": "vllm"}, server.url()),
        right=requests.chat(NAME, max_tokens=8),
        is_right=requests.has_text,
        stream=requests.chat(NAME, stream=True, max_tokens=16),
        pieces=3,
        mistake=requests.chat(NAME, temperature="warm"),
        long=requests.chat(NAME, stream=True, max_tokens=1500, ignore_eos=True),
        running=gauge(f"{server.url()}/metrics", "vllm:num_requests_running"),
        signals=f"{server.url()}/metrics",
        signals_server="vllm",
        order=NAME,
        lacks={"metadata": NO_TENSORS, "readiness": NO_TENSORS},
    )


@every_feature
async def test_conforms(running: Started, feature: str) -> None:
    await conforms(subject(running), feature)
