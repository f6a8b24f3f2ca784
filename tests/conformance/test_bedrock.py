"""Bedrock's runtime, before a stand-in that compares each request with AWS's own description."""

import pytest

from adapters.conformance import requests
from adapters.conformance.subject import Subject, pool
from tests.conformance.recorded import conforms, every_feature
from tests.conformance.subjects import chatting, no_tensors
from tests.support.providers.bedrock import CLAUDE, KEY, Bedrock, bedrock

pytestmark = pytest.mark.plain


def subject(server: Bedrock) -> Subject:
    async def answering() -> float:
        return server.running

    return chatting(
        CLAUDE,
        system="Amazon Bedrock",
        version="2023-09-30",
        how="conformance server",
        pool=pool("bedrock", server.url, key=KEY),
        stream=requests.chat(CLAUDE, "one two three four five", stream=True),
        pieces=5,
        mistake=requests.chat(CLAUDE, temperature=1.5),
        long=requests.chat(CLAUDE, "slow " * 200, stream=True, max_tokens=500),
        running=answering,
        lacks={
            "load signals": "Bedrock reports no load.",
            "load and unload": "Clients cannot load the models of a hosted API.",
            **no_tensors("Bedrock's protocol"),
        },
    )


@every_feature
async def test_conforms(feature: str) -> None:
    async with bedrock() as server:
        await conforms(subject(server), feature)
