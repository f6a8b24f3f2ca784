"""Anthropic's Messages, before a stand-in built from the types of the official client library."""

import pytest

from adapters.conformance import requests
from adapters.conformance.subject import Subject, pool
from adapters.wire.anthropic.requests import VERSION
from tests.conformance.recorded import conforms, every_feature
from tests.conformance.subjects import chatting, no_tensors
from tests.servers.stand_ins.anthropic import KEY, MODEL, Anthropic, anthropic

pytestmark = pytest.mark.plain


def subject(server: Anthropic) -> Subject:
    async def answering() -> float:
        return server.running

    return chatting(
        MODEL,
        system="Anthropic Messages",
        version=VERSION,
        how="conformance server",
        pool=pool("anthropic", server.url, key=KEY),
        stream=requests.chat(MODEL, "one two three four five", stream=True),
        pieces=5,
        mistake=requests.chat(MODEL, temperature=1.5),
        long=requests.chat(MODEL, "slow " * 200, stream=True, max_tokens=500),
        running=answering,
        lacks={
            "load signals": "Anthropic's API reports no load.",
            "load and unload": "Clients cannot load the models of a hosted API.",
            **no_tensors("Anthropic's protocol"),
        },
    )


@every_feature
async def test_conforms(feature: str) -> None:
    async with anthropic() as server:
        await conforms(subject(server), feature)
