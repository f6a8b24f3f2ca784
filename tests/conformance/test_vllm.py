"""A real vLLM, on the CPU."""

import pytest

from adapters.conformance.bench import gauge
from adapters.conformance.subject import Subject, pool
from loadtests.peers.vllm import VERSION
from tests.conformance.recorded import conforms, every_feature
from tests.conformance.subjects import chatting
from tests.servers.shared import shared
from tests.servers.started import Started
from tests.servers.vllm import NAME, vllm

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800, func_only=True)]


@pytest.fixture(scope="module")
def running() -> Started:
    return shared(vllm)


def subject(server: Started) -> Subject:
    return chatting(
        NAME,
        system="vLLM",
        version=f"{VERSION}, CPU",
        pool=pool({"name": "openai", "dialect": "vllm"}, server.url()),
        running=gauge(f"{server.url()}/metrics", "vllm:num_requests_running"),
        signals=f"{server.url()}/metrics",
        signals_server="vllm",
        order=NAME,
    )


@every_feature
async def test_conforms(running: Started, feature: str) -> None:
    await conforms(subject(running), feature)
