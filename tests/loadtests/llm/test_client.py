"""The benchmark's client against our own server."""

import asyncio
import socket

import pytest

from loadtests.llm.client import Door, run
from loadtests.llm.workloads import W2, Word, Workload
from tests.runtimes.llm.server_fixtures import MODEL, serving

WORDS = [Word(ord(letter), f" {letter}") for letter in "abcdefgh"]
SOME = Workload("some", 9, 4, prompt=(3, 20), answer=(2, 12))


async def test_every_answer_is_counted_and_timed() -> None:
    async with serving("x" * 40) as running:
        door = Door(int(running.url.rpartition(":")[2]), MODEL)
        load = await asyncio.to_thread(run, door, SOME.build(WORDS, "1"), SOME.at_once)
    assert list(load.failed) == []
    assert [(answer.prompt_tokens, answer.tokens) for answer in load.answers] == SOME.lengths(9)
    for answer in load.answers:
        assert answer.text == "x" * answer.tokens
        assert 1 <= len(answer.pieces) <= answer.tokens
        assert answer.sent < answer.pieces[0] <= answer.pieces[-1] <= answer.ended
    assert load.wall_s >= max(answer.ended - answer.sent for answer in load.answers)


async def test_an_answer_ends_at_its_length_alone() -> None:
    async with serving("x") as running:  # with this script the model generates only tokens that end an answer
        door = Door(int(running.url.rpartition(":")[2]), MODEL)
        load = await asyncio.to_thread(run, door, SOME.build(WORDS, "1", 1), 1)
    assert [answer.tokens for answer in load.answers] == [SOME.lengths(1)[0][1]]


async def test_a_refusal_is_a_failure_with_its_reason() -> None:
    async with serving() as running:
        port = int(running.url.rpartition(":")[2])
        load = await asyncio.to_thread(run, Door(port, "nobody"), SOME.build(WORDS, "1", 2), 2)
        short = await asyncio.to_thread(run, Door(port, MODEL, extra={"max_tokens": 1}), SOME.build(WORDS, "1", 1), 1)
    assert load.answers == []
    assert ["404" in why for why in load.failed] == [True, True]
    assert "+ 1 tokens instead of" in short.failed[0]


def test_a_refused_connection_is_a_failure() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        load = run(Door(unused.getsockname()[1], MODEL), W2.build(WORDS, "1", 3), 1)
    assert len(load.failed) == 3


@pytest.mark.parametrize("as_text", [False, True])
def test_a_prompt_is_sent_as_tokens_or_as_text(as_text: bool) -> None:
    (drawn,) = SOME.build(WORDS, "1", 1)
    request = Door(1, MODEL, key="k", as_text=as_text).request(drawn)
    assert (drawn.text.encode() in request) == as_text
    assert (b"ignore_eos" in request) != as_text
    assert b"Authorization: Bearer k\r\n" in request
    head, _, body = request.partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
