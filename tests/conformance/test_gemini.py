"""The Gemini API, before a stand-in that refuses each field which Google's own messages do not define."""

import pytest

from adapters.conformance import requests
from adapters.conformance.subject import Subject, pool
from tests.conformance.recorded import conforms, every_feature
from tests.conformance.subjects import chatting, no_tensors
from tests.support.providers.gemini import KEY, MODEL, Gemini, gemini

pytestmark = pytest.mark.plain


def subject(server: Gemini) -> Subject:
    async def answering() -> float:
        return server.running

    return chatting(
        MODEL,
        system="Gemini",
        version="v1beta",
        how="conformance server",
        pool=pool("gemini", server.url, key=KEY),
        stream=requests.chat(MODEL, "one two three four five", stream=True),
        pieces=5,
        mistake=requests.chat(MODEL, temperature=2.5),
        long=requests.chat(MODEL, "slow " * 200, stream=True, max_tokens=500),
        running=answering,
        lacks={
            "load signals": "Gemini's API reports no load.",
            "load and unload": "Clients cannot load the models of a hosted API.",
            **no_tensors("Gemini's protocol"),
        },
    )


@every_feature
async def test_conforms(feature: str) -> None:
    async with gemini() as server:
        await conforms(subject(server), feature)
