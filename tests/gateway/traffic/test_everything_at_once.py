"""Retry, hedge, resume, fallback and cache on one route: each rule holds beside the others."""

import asyncio
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.errors import BackendError, InferenceError
from adapters.fake import FakeAdapter
from tests.support.gateways import Rig, chat, config
from tests.support.talkers import StreamTranscript, Talker

TOKENS = ["Ri", "vers", " run", " to", " the", " sea", "."]
REQUESTS = 24
TALKERS = 4
SHARE, FLOOR = 0.2, 3


class Moody(Talker):
    """Late, refusing, or breaking somewhere, as chance has it; now and then none of it."""

    def __init__(self, dice: random.Random, illness: float, name: str) -> None:
        super().__init__(TOKENS, name=name, fault=BackendError("x"), gap=0.2)
        self.breaks = iter(lambda: dice.randint(-1, 6) if dice.random() < illness else None, object())
        self._dice = dice

    @property
    def latency(self) -> float:
        return self._dice.choice([0.05, 0.1, 0.3, 2.0])

    @latency.setter
    def latency(self, seconds: float) -> None:
        """Chance decides."""


def moody_rig(dice: random.Random, illness: float) -> Rig:
    pools = [
        {
            "name": name,
            "endpoints": [f"http://127.0.0.1:{port}" for port in range(9, 9 + count)],
            "resume": "tokens" if count > 1 else None,
            "breaker": {"failures": 1000},
        }
        for name, count in (("main", TALKERS), ("spare", 1))
    ]
    route = {
        "to": "main",
        "fallback": ["spare"],
        "retry": {"attempts": 3, "budget": "20%", "backoff": "10ms"},
        "hedge": {"after": "500ms", "budget": "20%"},
        "cache": {"ttl": "1s"},
        "timeout": {"total": "20s"},
    }
    fakes: dict[str, list[FakeAdapter]] = {
        "main": [Moody(dice, illness, f"m{i}") for i in range(TALKERS)],
        "spare": [Talker(TOKENS, name="spare", gap=0.2)],
    }
    return Rig(config(pools=pools, models=[{"name": "chat", "routes": [route]}]), fakes, seed=dice.randint(0, 99))


@settings(max_examples=10)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.3, 1.0]), st.booleans())
async def test_each_request_ends_once_truthfully_and_within_every_budget(
    seed: int, illness: float, shared: bool
) -> None:
    async def client(one: Rig, dice: random.Random, number: int) -> None:
        await asyncio.sleep(dice.random() * 8)
        record, pieces = one.record(), list[bytes]()
        request = chat(stream=True, temperature=0, seed=dice.randint(0, 2) if shared else number)
        try:
            async with asyncio.timeout(dice.choice([None, None, None, dice.random() * 4])):
                answer = await one.core.handle(one.principal, request, {}, record)
                try:
                    while True:
                        pieces.append(await answer.__anext__())
                finally:
                    await answer.aclose()
        except (StopAsyncIteration, RuntimeError, TimeoutError, InferenceError):
            pass
        transcript = StreamTranscript(b"".join(pieces))
        assert "".join(TOKENS).startswith(transcript.text)
        assert not transcript.done or transcript.text == "".join(TOKENS)
        assert not record.trace.first_chunk or transcript.done or record.error is not None

    dice = random.Random(seed)
    one = moody_rig(dice, illness)
    await asyncio.gather(*(client(one, dice, number) for number in range(REQUESTS)))
    for _ in range(3):
        await asyncio.sleep(0)
    one.assert_idle()
    begun = [record for record in one.log.records if record.trace.first_chunk]
    assert len(begun) == len(set(map(id, begun)))
    attempts = sum(len(fake.calls) for fake in one.adapters["main"])
    resumes = sum(event.startswith("resume") for record in begun for event, _ in record.trace.events)
    firsts = REQUESTS + resumes
    retries = FLOOR + SHARE * firsts
    hedges = FLOOR + SHARE * (firsts + retries)
    assert attempts <= firsts + 2 * (retries + hedges)  # in less than twice ten seconds
    if not illness:
        assert resumes == 0
        assert all(record.error is None or record.status == 499 for record in begun)
