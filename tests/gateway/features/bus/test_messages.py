"""Messages that are refused, tried again or too late, whichever broker has them."""

import asyncio

import pytest

from adapters.errors import BackendError, Overloaded
from adapters.fake import Script
from tests.support.brokers.broker import cloud_event
from tests.support.brokers.memory import MemoryBinding
from tests.support.brokers.rig import WHOLE, chat_body

pytestmark = pytest.mark.plain


async def test_a_failing_server_is_tried_again_and_a_lack_of_capacity_is_no_attempt() -> None:
    full = Script(fault=Overloaded("every endpoint is full", retry_after=0.01))
    broken = Script(fault=BackendError("it failed"))
    async with MemoryBinding(*[full] * 6, broken, broken, WHOLE, attempts=3) as made:
        made.broker.put("a")
        await asyncio.sleep(600)
        assert made.broker.statuses() == ["200"]
        assert made.consumer.runner.retries >= 3


async def test_a_mistake_of_the_sender_is_not_tried_again() -> None:
    async with MemoryBinding() as made:
        made.broker.put("json", b"{")
        made.broker.put("model", chat_body(model="another"))
        made.broker.put_raw("type", b"text", {**cloud_event("type"), "content-type": "text/plain"})
        await asyncio.sleep(5)
        assert made.broker.statuses_by_id() == {"json": "400", "model": "404", "type": "415"}
        dead = {each.headers["ce_id"]: each.headers["headrace-dead-reason"] for each in made.broker.dead()}
        assert dead == {"json": "invalid_json", "model": "model_not_found", "type": "unsupported_media_type"}
        assert made.rig.adapters["main"][0].calls == []


async def test_a_message_without_a_valid_envelope_is_a_dead_letter() -> None:
    envelopes = {
        "no_envelope": {"x": "1"},
        "missing_attribute": {"ce_specversion": "1.0", "ce_source": "/s", "ce_type": "t"},
        "unsupported_version": {**cloud_event("a"), "ce_specversion": "0.3"},
        "reply_topic_refused": cloud_event("b", replyto="elsewhere"),
        "invalid_deadline": cloud_event("c", deadline="tomorrow"),
        "batched_events": {"content-type": "application/cloudevents-batch+json"},
        "invalid_json": {"content-type": "application/cloudevents+json"},
    }
    async with MemoryBinding() as made:
        for reason, headers in envelopes.items():
            made.broker.put_raw(reason, reason.encode(), headers)
        made.broker.put("good")
        await asyncio.sleep(5)
        dead = {each.body.decode(): each.headers["headrace-dead-reason"] for each in made.broker.dead()}
        assert dead == {reason: reason for reason in envelopes}
        assert made.broker.statuses_by_id() == {"good": "200"}
        assert len(made.broker.settled) == len(envelopes) + 1


async def test_a_deadline_ends_a_message() -> None:
    async with MemoryBinding(Script(latency=30.0), deadline="200ms") as made:
        made.broker.put("late")
        made.broker.put("past", deadline="2020-01-01T00:00:00Z")
        await asyncio.sleep(5)
        assert made.broker.statuses_by_id() == {"late": "504", "past": "504"}
        assert made.broker.reasons() == ["deadline_exceeded"] * 2


async def test_a_stream_that_the_binding_does_not_have_is_refused() -> None:
    async with MemoryBinding() as made:
        made.broker.put("s", chat_body(stream=True))
        await asyncio.sleep(5)
        assert made.broker.statuses_by_id() == {"s": "400"}
