"""The soak's clients against our own server, and its judgement."""

import asyncio
from collections import Counter
from pathlib import Path

import aiohttp
import pytest

from loadtests.llm.judgement import IDLE, at_rest, metrics, rising, verdict
from loadtests.llm.mixed import KINDS, Clients, Seen
from loadtests.llm.workloads import Word
from loadtests.soaks.llm import launch, parse
from loadtests.soaks.tensor import Process
from runtimes.llm.__main__ import _parser
from tests.runtimes.llm.server_fixtures import MODEL, Running, serving, until_idle

MIB = float(1 << 20)
WORDS = [Word(ord(letter), f" {letter}") for letter in "abcdefgh"]
WHOLE = "… INFO runtimes.llm.service idle: all 3000 pages of the KV cache are free or cached\n"
REST = dict.fromkeys(IDLE, 0.0)


class Short(Clients):
    """Clients with prompts that fit the small server."""

    def _text(self, least: int, most: int) -> str:
        return super()._text(1, 20)


async def sent(running: Running, *kinds: str) -> Seen:
    clients = Short(running.url, WORDS, MODEL)
    async with aiohttp.ClientSession() as http:
        for kind in kinds:
            await clients.request(http, kind)
    return clients.seen


def steady(memory: float = 900 * MIB, growth: float = 0.0) -> Process:
    return Process("runtime", 1, [memory * (1 + growth * i / 40) for i in range(40)], [20.0] * 40, [1.0] * 40)


async def test_answers_are_judged() -> None:
    async with serving("x" * 200, max_queue=8) as running:
        seen = await sent(running, "stream", "known", "known", "sampled", "refused", "refused", "refused")
        assert seen.wrong == []
        assert seen.right == Counter(stream=1, known=2, sampled=1, refused=3)
        assert seen.slowest_s > 0


async def test_clients_that_disconnect_free_their_pages() -> None:
    async with serving("x" * 200) as running:
        seen = await sent(running, *["left"] * 12)
        await until_idle(running.engine)
    assert seen.wrong == []
    assert seen.right["left"] == 12


async def test_an_answer_that_changes_is_wrong() -> None:
    async with serving("abc") as running:
        clients = Short(running.url, WORDS, MODEL)
        async with aiohttp.ClientSession() as http:
            await clients.request(http, "known")
            running.parrot.script[:] = running.parrot.script[::-1]
            await clients.request(http, "known")
    assert clients.seen.right["known"] == 1
    assert len(clients.seen.wrong) == 1
    assert "instead of" in clients.seen.wrong[0]


async def test_a_failing_server_is_reported() -> None:
    async with serving("x" * 200, fails_after=3) as running:
        seen = await sent(running, "stream", "stream")
    assert len(seen.wrong) == 2


async def test_a_full_queue_is_not_wrong() -> None:
    async with serving("x" * 200, max_queue=1, max_num_seqs=1) as running:
        running.parrot.gate.clear()
        clients = Short(running.url, WORDS, MODEL)
        async with aiohttp.ClientSession() as http, asyncio.timeout(300):
            pending = [asyncio.create_task(clients.request(http, "known")) for _ in range(8)]
            while not clients.seen.busy:
                await asyncio.sleep(0.01)
            running.parrot.gate.set()
            await asyncio.gather(*pending)
    assert clients.seen.wrong == []


async def test_the_runtimes_metrics_are_read() -> None:
    async with serving("x" * 40) as running:
        await sent(running, "known")
        port = int(running.url.rpartition(":")[2])
        rest = await asyncio.to_thread(at_rest, port)
        assert [rest[name] for name in IDLE] == [0, 0, 0]
        assert rest["generation_tokens"] == 8
        assert (await asyncio.to_thread(metrics, port))["prompt_tokens"] > 0


def test_a_soak_without_fault_passes() -> None:
    seen = Seen(right=Counter(stream=5))
    assert verdict(steady(), seen, ["stream"], REST, WHOLE) == []
    assert verdict(steady(growth=0.02), seen, ["stream"], REST, WHOLE) == []


@pytest.mark.parametrize(
    ("server", "seen", "rest", "log", "message"),
    [
        (steady(growth=0.2), Seen(Counter(stream=5)), REST, WHOLE, "bytes in RAM"),
        (steady(), Seen(Counter()), REST, WHOLE, "no request was answered: stream"),
        (steady(), Seen(Counter(stream=5), wrong=["7 instead of 8"]), REST, WHOLE, "7 instead of 8"),
        (steady(), Seen(Counter(stream=5)), {**REST, "num_requests_running": 1.0}, WHOLE, "at rest num_requests_run"),
        (steady(), Seen(Counter(stream=5)), REST, "", "not found whole"),
        (steady(), Seen(Counter(stream=5)), REST, WHOLE + "… ERROR x: a page is lost", "a page is lost"),
    ],
)
def test_every_fault_is_reported(server: Process, seen: Seen, rest: dict[str, float], log: str, message: str) -> None:
    (wrong,) = verdict(server, seen, ["stream"], rest, log)
    assert message in wrong


def test_a_run_is_shown_in_stretches() -> None:
    assert rising([float(i) for i in range(16)]) == [0.5, 2.5, 4.5, 6.5, 8.5, 10.5, 12.5, 14.5]
    assert rising([1.0, 2.0]) == [1.0, 2.0]


def test_kinds_of_requests_can_be_left_out() -> None:
    kinds = Clients("", WORDS, without=parse(["--without", "grammar"]).without).kinds
    assert kinds == [kind for kind in KINDS if kind != "grammar"]


def test_the_runtime_accepts_its_command_line() -> None:
    command = launch(Path("/m.gguf"), "int4", 18080).command
    assert _parser().parse_args(list(command[3:])).weights == "int4"
