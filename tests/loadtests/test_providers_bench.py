"""The bench of translated chats: one valid gateway, chats that decode, and ratios paired by round."""

import json
from pathlib import Path

import pytest
import yaml

from adapters.wire.openai.chat import decode_chat
from config.loader import load
from loadtests.gateways import provider_stub, providers
from loadtests.gateways.replies import CheckError
from loadtests.servers import Site

pytestmark = pytest.mark.plain


def test_one_gateway_has_a_pool_and_a_model_for_each_provider(tmp_path: Path) -> None:
    for name in ("provider", "id"):
        (tmp_path / f"{name}.key").write_text("x" * 20)
    file = tmp_path / "headrace.yaml"
    file.write_text(yaml.safe_dump(providers.written(Site(tmp_path, 8080, 9000), 8082)))
    settings = load(file)
    assert [model.name for model in settings.models] == [pool.name for pool in settings.pools] == [*providers.PROVIDERS]
    assert all(route.to == model.name for model in settings.models for route in model.routes)


def test_chats_differ_in_their_model_alone() -> None:
    for chat in providers.CHATS:
        bodies = [json.loads(providers.body(chat, name)) for name in providers.PROVIDERS]
        assert [body.pop("model") for body in bodies] == [*providers.PROVIDERS]
        assert all(body == bodies[0] for body in bodies)
        assert decode_chat(providers.body(chat, "m")).stream == (chat == providers.STREAM)


def test_answers_of_the_stub_are_checked() -> None:
    for chat, calls in ((providers.SHORT, False), (providers.TOOLS, True)):
        answer = provider_stub._openai(calls=calls).partition(b"\r\n\r\n")[2]
        providers._check(chat, providers.OPENAI, answer)
        with pytest.raises(CheckError):
            providers._check(providers.TOOLS if chat == providers.SHORT else providers.SHORT, "gemini", answer)
    for events in (provider_stub._openai_stream(), provider_stub._gemini_stream(), provider_stub._bedrock_stream()):
        assert b"".join(events).count(provider_stub.TOKEN.encode()) == provider_stub.CHUNKS


def test_ratios_are_paired_by_round() -> None:
    """A drift of the machine reaches all providers of a round alike."""
    figure = providers.CHATS[providers.SHORT].figures[0].name
    accepted = [
        {name: {figure: drift * (2 + more)} for more, name in enumerate(providers.PROVIDERS)} for drift in (1, 5, 2)
    ]
    made = providers.prices({providers.SHORT: accepted})
    for more, name in enumerate(providers.PROVIDERS):
        own, ratio = made[providers.SHORT, name]
        assert list(own) == [2 * (2 + more), 2 + more, 5 * (2 + more)]
        assert set(ratio) == {(2 + more) / 2}
