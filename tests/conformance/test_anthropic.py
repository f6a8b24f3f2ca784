"""Anthropic's Messages, before a stand-in built from the types of the official client library."""

from collections.abc import AsyncIterator

import pytest

from adapters.conformance import requests
from adapters.conformance.subject import Subject, pool
from adapters.wire.anthropic.requests import VERSION
from tests.conformance.recorded import conforms, every_feature
from tests.servers.stand_ins.anthropic import KEY, MODEL, Anthropic, anthropic

NO_TENSORS = "Anthropic's protocol has no tensors."
NO_SIGNALS = "Anthropic's API reports no load."
NO_ORDERS = "Clients cannot load the models of a hosted API."


@pytest.fixture
async def running() -> AsyncIterator[Anthropic]:
    async with anthropic() as server:
        yield server


def subject(server: Anthropic) -> Subject:
    async def answering() -> float:
        return server.running

    return Subject(
        system="Anthropic Messages",
        version=VERSION,
        how="conformance server",
        pool=pool("anthropic", server.url, key=KEY),
        right=requests.chat(MODEL, "one two three"),
        is_right=requests.has_text,
        stream=requests.chat(MODEL, "one two three four five", stream=True),
        pieces=5,
        mistake=requests.chat(MODEL, temperature=1.5),
        long=requests.chat(MODEL, "slow " * 200, stream=True, max_tokens=500),
        running=answering,
        lacks={
            "metadata": NO_TENSORS,
            "readiness": NO_TENSORS,
            "load signals": NO_SIGNALS,
            "load and unload": NO_ORDERS,
        },
    )


@every_feature
async def test_conforms(running: Anthropic, feature: str) -> None:
    await conforms(subject(running), feature)
