"""Faults of brokers and of the table of ids, on virtual time: nothing is lost, and nothing is answered by two."""

import asyncio
from typing import Any

import pytest

from adapters.brokers.base import BrokerDelivery, BrokerMessage, BrokerUnavailable
from adapters.errors import BackendError, Overloaded
from adapters.fake import Script
from gateway.features.bus.opening import Opener
from gateway.features.bus.work import MessageWork
from tests.support.brokers.memory import MemoryBinding
from tests.support.brokers.rig import ANSWER, WHOLE, chat_body

pytestmark = pytest.mark.plain


async def test_the_order_is_answer_then_id_then_settlement() -> None:
    async with MemoryBinding() as made:
        made.broker.put("a")
        await asyncio.sleep(5)
        assert made.broker.calls == ["publish", "finish", "settle"]


async def test_nothing_is_lost_while_the_broker_is_away() -> None:
    slow = Script(chunks=(ANSWER,), latency=1.0)
    async with MemoryBinding(slow) as made:
        made.broker.put("a")
        await asyncio.sleep(0.5)
        made.broker.down = True
        await asyncio.sleep(100)
        assert not made.consumer.available
        assert made.broker.settled == []
        made.broker.down = False
        await asyncio.sleep(20)
        assert made.broker.statuses() == ["200"]
        assert len(made.broker.settled) == 1
        assert made.consumer.available


async def test_nothing_is_answered_while_the_table_is_away() -> None:
    async with MemoryBinding() as made:
        made.table.down = True
        made.broker.put("a")
        await asyncio.sleep(100)
        assert made.broker.published == []
        made.table.down = False
        await asyncio.sleep(20)
        assert made.broker.statuses() == ["200"]


async def test_an_answer_is_not_published_after_its_claim_has_passed_to_another_process() -> None:
    slow = Script(chunks=(ANSWER,), latency=60.0)
    async with MemoryBinding(slow, takeover="10m") as made:
        made.broker.put("a")
        await asyncio.sleep(1)
        (id_,) = made.table.entries
        made.consumer._in_work[id_].renewed_at = float("-inf")  # as after a long pause of the process
        made.table.entries[id_] = "another"
        await asyncio.sleep(120)
        assert made.broker.published == []
        assert made.broker.settled == []
        made.table.entries[id_] = "*"
        await asyncio.sleep(5)
        assert made.broker.published == []
        assert len(made.broker.settled) == 1


async def test_a_message_of_another_process_waits_for_its_end() -> None:
    async with MemoryBinding() as made:
        made.broker.put("a")
        made.broker.put("a", count=2)
        await asyncio.sleep(5)
        assert made.broker.statuses() == ["200"]
        assert len(made.broker.settled) == 2
        made.table.entries.update(dict.fromkeys(made.table.entries, "another"))
        made.broker.put("a", count=3)
        await asyncio.sleep(30)
        assert len(made.broker.settled) == 2
        made.table.entries.clear()  # its claim has ended
        await asyncio.sleep(5)
        assert made.broker.statuses() == ["200", "200"]
        assert len(made.broker.settled) == 3


async def test_an_answer_that_the_broker_rejects_is_an_error_and_a_dead_letter() -> None:
    async with MemoryBinding() as made:
        made.broker.rejects = lambda message: message.headers.get("ce_status") == "200"
        made.broker.put("a")
        await asyncio.sleep(5)
        assert made.broker.statuses() == ["502"]
        assert made.broker.reasons() == ["answer_rejected"]
        assert len(made.broker.settled) == 1


async def test_an_answer_that_nothing_reads_is_a_dead_letter() -> None:
    async with MemoryBinding() as made:
        made.broker.unread = {"out"}
        made.broker.put("a")
        await asyncio.sleep(5)
        (dead,) = made.broker.published
        assert (dead.topic, dead.body) == ("dead", chat_body())
        assert made.broker.reasons() == ["answer_unroutable"]
        assert len(made.broker.settled) == 1


BAD: dict[str, tuple[str, str]] = {
    # a fault of one message: the reason of its dead letter, and its `replyto`
    "refused": ("reply_topic_refused", "out.refused"),
    "unread": ("answer_unroutable", "out.unread"),
    "rejected": ("answer_rejected", "out.rejected"),
    "away": ("", "out.away"),
}


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("fault", BAD)
async def test_a_message_that_cannot_be_answered_repeats_and_stops_no_other(fault: str, place: int) -> None:
    reason, topic = BAD[fault]
    async with MemoryBinding(reply={"topic": "out", "allowed": ["out.*"]}) as made:
        broker = made.broker
        broker.refused, broker.unread = {"out.refused"}, {"out.unread"}
        broker.rejects = lambda message: message.topic == "out.rejected" and message.headers["ce_status"] == "200"
        broker.away = lambda message: message.topic == "out.away"
        for at in range(4):
            chosen: dict[str, Any] = {"replyto": topic} if at == place else {}
            broker.put(str(at), **chosen)
        await asyncio.sleep(300)
        broker.put("later")
        await asyncio.sleep(5)
        others = [str(at) for at in range(4) if at != place]
        answered = [each.headers["ce_correlationid"] for each in broker.published if each.topic == "out"]
        assert sorted(answered) == [*others, "later"]
        assert broker.reasons() == ([reason] if reason else [])
        assert made.consumer.held == (made.consumer.endings and made.consumer.endings.size) == (fault == "away")
        assert made.consumer.available is (fault != "away")
        assert made.consumer.counts.dead == ({reason: 1} if reason else {})
        broker.away = lambda _: False
        await asyncio.sleep(30)
        assert [each.topic for each in broker.published].count("out.away") == (fault == "away")
        assert made.consumer.held == 0
        assert made.consumer.available


async def test_a_stuck_answer_is_logged_once_and_tried_ever_later(caplog: pytest.LogCaptureFixture) -> None:
    async with MemoryBinding(reply={"topic": "out", "allowed": ["out.*"]}) as made:
        tries = 0

        def away(message: BrokerMessage) -> bool:
            nonlocal tries
            tries += message.topic == "out.away"
            return message.topic == "out.away"

        made.broker.away = away
        made.broker.put("stuck", replyto="out.away")
        for number in range(1000):  # answers beside it
            made.broker.put(str(number))
            await asyncio.sleep(0.1)
        await asyncio.sleep(5)
        assert len(made.broker.statuses()) == 1000
        assert tries < 40
        made.broker.away = lambda _: False
        await asyncio.sleep(10)
        assert made.consumer.held == 0
    assert caplog.messages == ["bus b: publishing waits: a queue is full", "bus b: publishing continues"]


@pytest.mark.parametrize("topic", ["out", "dead"])
async def test_messages_wait_for_a_topic_of_the_configuration(topic: str) -> None:
    async with MemoryBinding() as made:
        made.broker.refused = {topic}
        version: dict[str, Any] = {"specversion": "0.3"} if topic == "dead" else {}
        made.broker.put("a", **version)
        await asyncio.sleep(300)
        assert not made.consumer.available
        assert made.broker.published == []
        made.broker.refused = set()  # an operator grants the right
        await asyncio.sleep(10)
        assert [each.topic for each in made.broker.published] == [topic]


async def test_a_message_that_fails_to_open_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(opener: Opener, delivery: BrokerDelivery) -> MessageWork:
        if delivery.headers["ce_id"] == "bad":
            raise RecursionError
        return await whole(opener, delivery)

    whole = Opener.open
    monkeypatch.setattr(Opener, "open", fails)
    async with MemoryBinding() as made:
        for id_ in ("a", "bad", "b"):
            made.broker.put(id_)
        await asyncio.sleep(5)
        assert made.broker.statuses() == ["200", "200"]
        assert made.broker.reasons() == ["internal_error"]
        assert made.consumer.held == 0


async def test_an_error_that_nothing_reads_has_its_dead_letter_only() -> None:
    async with MemoryBinding(Script(fault=BackendError("it failed")), attempts=1) as made:
        made.broker.unread = {"out"}
        made.broker.put("a")
        await asyncio.sleep(5)
        assert made.broker.reasons() == ["upstream_error"]
        assert len(made.broker.settled) == 1


async def test_a_message_in_work_is_not_dead_however_often_it_is_delivered() -> None:
    """A connection that is lost again and again while a message waits for capacity is no fault of the message."""
    slow = Script(chunks=(ANSWER,), latency=20.0)
    async with MemoryBinding(slow, deliveries=3) as made:
        for count in range(1, 9):
            made.broker.put("a", count=count)
            await asyncio.sleep(1)
        await asyncio.sleep(30)
        assert made.broker.statuses() == ["200"]
        assert made.broker.reasons() == []
        assert len(made.broker.settled) == 8


async def test_a_dead_letter_that_is_too_large_has_no_body() -> None:
    async with MemoryBinding(max_message="1KiB") as made:
        made.broker.rejects = lambda message: len(message.body) > 1024
        made.broker.put("a", body=b"x" * 5000)
        await asyncio.sleep(5)
        (dead,) = made.broker.published
        assert (dead.body, dead.headers["headrace-dead-bytes"]) == (b"", "5000")
        assert made.broker.reasons() == ["message_too_large"]


async def test_a_message_that_is_delivered_too_often_does_not_run() -> None:
    async with MemoryBinding(deliveries=3) as made:
        made.broker.put("a", count=4)
        await asyncio.sleep(5)
        assert made.broker.reasons() == ["delivered_too_often"]
        assert made.rig.adapters["main"][0].calls == []
        assert made.consumer.counts.redeliveries == 1


async def test_a_message_in_work_is_released_when_the_process_ends() -> None:
    stuck = Script(latency=1000.0)
    async with MemoryBinding(stuck) as made:
        made.broker.put("a")
        await asyncio.sleep(1)
        assert len(made.table.entries) == 1
    assert made.table.entries == {}
    assert len(made.broker.released) == 1
    assert made.broker.settled == []


async def test_a_settlement_that_fails_is_no_second_answer() -> None:
    async with MemoryBinding() as made:
        made.broker.settle = _unavailable  # type: ignore[method-assign, assignment]
        made.broker.put("a")
        await asyncio.sleep(5)
        del made.broker.settle
        made.broker.put("a", count=2)
        await asyncio.sleep(5)
        assert made.broker.statuses() == ["200"]
        assert len(made.broker.settled) == 1
        assert made.consumer.held == 0


async def _unavailable(_: object) -> None:
    raise BrokerUnavailable("down")


async def _unexpected(_: object) -> None:
    raise RuntimeError("unable to perform operation; the handler is closed")


async def test_later_messages_end_after_an_unexpected_error_of_a_settlement(caplog: pytest.LogCaptureFixture) -> None:
    async with MemoryBinding() as made:
        made.broker.settle = _unexpected  # type: ignore[method-assign, assignment]
        for id_ in ("a", "b"):
            made.broker.put(id_)
            await asyncio.sleep(5)
        del made.broker.settle
        made.broker.put("c")
        await asyncio.sleep(5)
        assert made.broker.statuses() == ["200"] * 3
        assert [place.split("-")[1] for place in made.broker.settled] == ["c"]
        assert made.consumer.held == 0
    assert caplog.text.count("answered messages may not be settled") == 2
    assert "RuntimeError: unable to perform operation" in caplog.text


async def test_claims_are_renewed_after_an_unexpected_error_of_a_renewal(caplog: pytest.LogCaptureFixture) -> None:
    slow = Script(chunks=(ANSWER,), latency=100.0)
    async with MemoryBinding(slow) as made:
        made.broker.renew = _unexpected  # type: ignore[method-assign, assignment]
        await asyncio.sleep(1)
        made.broker.put("a")
        await asyncio.sleep(5)
        del made.broker.renew
        await asyncio.sleep(20)
        (work,) = made.consumer._in_work.values()
        assert asyncio.get_running_loop().time() - work.renewed_at < made.binding.takeover
    assert "the background task bus b: renewing failed and begins again in 1 s" in caplog.text


async def test_a_message_waits_for_capacity_without_an_end_and_within_its_deadline() -> None:
    full = Script(fault=Overloaded("full", retry_after=1.0))
    async with MemoryBinding(*[full] * 300, WHOLE) as made:
        made.broker.put("a")
        await asyncio.sleep(200)
        assert made.broker.published == []
        await asyncio.sleep(3600)
        assert made.broker.statuses() == ["200"]
    async with MemoryBinding(full, deadline="1m") as made:
        made.broker.put("a")
        await asyncio.sleep(120)
        assert made.broker.statuses() == ["504"]
