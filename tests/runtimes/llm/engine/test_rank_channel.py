"""The socket between two ranks: messages arrive whole, and a rank that stands still does not hold the other."""

import socket

import pytest

from runtimes.llm.engine.ranks.channel import ChunkPlan, RankChannel, StepPlan


def test_a_message_arrives_as_it_was_sent() -> None:
    ours, theirs = (RankChannel(end) for end in socket.socketpair())
    plan = StepPlan("logits", [ChunkPlan(3, 16, (5, 6, 7), [2, 9])], [2])
    ours.send(plan)
    assert theirs.receive() == plan
    ours.close()
    assert theirs.receive() is None
    theirs.close()


def test_a_rank_that_reads_nothing_ends_the_wait_of_the_sender() -> None:
    sender, still = socket.socketpair()
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    channel = RankChannel(sender, seconds=0.02)
    plan = StepPlan("logits", [ChunkPlan(0, 0, (1,) * 200_000, [0] * 20_000)], [0])
    with pytest.raises(OSError):
        channel.send(plan)
    channel.close()
    still.close()
