"""Samples of differing copies: redacted before they are held, bounded, and stored."""

import asyncio
from typing import Any

import pytest

from adapters.types import Form
from gateway.features.recording.contents import ResendSource
from gateway.features.shadow.answers import WholeAnswer
from gateway.features.shadow.samples import MOST_TEXT, sampled_texts
from gateway.features.shadow.store import ShadowStore
from policies.shadowing.pairs import PairTally, ShadowSample
from policies.shadowing.planned import planned
from tests.support.gateways import chat
from tests.support.shadows import ShadowRig, script, shadowing

SECRET = "sk-0123456789abcdefghij0123456789"
MAIL = "ann@example.com"


@pytest.mark.processes
async def test_a_sample_has_neither_secrets_nor_configured_kinds() -> None:
    rig = ShadowRig(shadowing(samples=3), main=script(f"mail {MAIL}"), copied_next=script(f"the key is {SECRET}"))
    rig.copies.redact = ("email", "json:$.user")
    for _ in range(3):
        await rig.compare(chat(messages=[{"role": "user", "content": f"my key: {SECRET}, {MAIL}"}], user="ann"))
    sample, *others = rig.shadow.take_samples()  # one a second at most
    assert len(others) <= 2
    assert sample.id == "req-1"
    assert sample.differences.keys() == {"text"}
    for text in (sample.request, sample.primary, sample.shadow):
        assert SECRET not in text
        assert MAIL not in text
        assert '"ann"' not in text
    assert "[email]" in sample.primary
    assert "the key is [secret]" in sample.shadow
    rig.assert_idle()


async def test_without_samples_no_text_is_held() -> None:
    rig = ShadowRig(shadowing(), copied_next=script("another"))
    await rig.compare(chat())
    assert rig.shadow.copies == {"differing": 1}
    assert rig.shadow.take_samples() == []


def test_texts_are_cut_and_binary_tensors_are_left_out() -> None:
    source = ResendSource(
        "/v2/models/m/infer", "POST", "application/octet-stream", body=b'{"a": 1}' + b"\xff" * 64, head=8
    )
    long = WholeAnswer(200, data=b'"' + b"x" * 10_000 + b'"')
    binary = WholeAnswer(200, form=Form("oip-http", 8), data=b'{"b": 2}' + b"\0" * 64)
    texts = sampled_texts(source, long, binary, ())
    assert texts.request == '{"a": 1}'
    assert len(texts.primary) == MOST_TEXT + 1
    assert texts.shadow == '{"b": 2}'


async def test_a_database_has_the_latest_samples(any_database: str) -> None:
    configuration: Any = shadowing(samples=3)
    (plan,) = planned(configuration)
    key = plan.name, plan.identity
    store = ShadowStore(any_database, b"p" * 32)
    for number in range(7):
        taken = ShadowSample(float(number), f"req-{number}", {"text": "no"}, "q", "a", "b")
        await asyncio.to_thread(store.add, [plan], {key: PairTally(compared=1, differing=1)}, {key: [taken]})
    assert [sample.id for sample in store.samples(key)] == ["req-6", "req-5", "req-4"]
    store.close()
