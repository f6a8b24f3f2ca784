"""Messages of real brokers are answered as requests."""

import asyncio
import json
from pathlib import Path

from adapters.errors import BackendError
from adapters.fake import Script
from tests.support.brokers.broker import RealBroker
from tests.support.brokers.rig import ANSWER, WHOLE, binding, bus_rig, chat_body


async def test_each_message_is_answered_once_and_settled(broker: RealBroker, tmp_path: Path) -> None:
    async with bus_rig(broker, tmp_path) as bus:
        ids = [f"id-{number}" for number in range(50)]
        await bus.send(*ids, traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        answers = await bus.answers(50)
        assert sorted(answers) == sorted(ids)
        first = answers["id-7"]
        assert first.body == ANSWER
        assert first.headers["ce_type"] == "com.headrace.answer"
        assert (first.headers["ce_status"], first.headers["content-type"]) == ("200", "application/json")
        assert first.headers["ce_traceparent"].endswith("-b7ad6b7169203331-01")
        await broker.settled("requests")
        await bus.until(lambda: bus.consumer.held == 0)
        assert bus.consumer.counts.outcomes == {"answered": 50}
    assert {record.key for record in bus.rig.log.records} == {"bus:work"}
    assert {record.tenant for record in bus.rig.log.records} == {"acme"}
    assert await broker.messages("dead") == []


async def test_a_message_with_the_same_source_and_id_has_one_answer(broker: RealBroker, tmp_path: Path) -> None:
    slow = Script(chunks=(ANSWER,), latency=0.3)
    async with bus_rig(broker, tmp_path, slow) as bus:
        await bus.send("same", "same", "same")  # while the first is in work
        await bus.answers(1)
        await bus.send("same")  # after its answer
        await bus.send("same", source="/another")
        await bus.until(lambda: sum(bus.consumer.counts.outcomes.values()) >= 2)
        await broker.settled("requests")
        assert len(await broker.messages("answers")) == 2
        assert len(bus.fake.calls) == 2


async def test_an_answered_message_is_not_answered_again_by_another_process(broker: RealBroker, tmp_path: Path) -> None:
    async with bus_rig(broker, tmp_path) as bus:
        await bus.send("a")
        await bus.answers(1)
        await broker.settled("requests")
    async with bus_rig(broker, tmp_path) as bus:
        await bus.send("a", "b")
        await bus.answers(2)
        await bus.until(lambda: bus.consumer.counts.outcomes["duplicate"] == 1)
        assert len(bus.fake.calls) == 1


async def test_a_final_failure_is_answered_and_is_a_dead_letter(broker: RealBroker, tmp_path: Path) -> None:
    broken = Script(fault=BackendError("it failed"))
    async with bus_rig(broker, tmp_path, broken, bindings=[binding(broker, attempts=2)]) as bus:
        await bus.send("a", key=b"k")
        answers = await bus.answers(1)
        assert answers["a"].headers["ce_status"] == "502"
        assert answers["a"].headers["ce_type"] == "com.headrace.error"
        (dead,) = await broker.read("dead", 1)
        assert dead.headers["headrace-dead-reason"] == "upstream_error"
        assert dead.headers["headrace-dead-topic"] == "requests"
        assert dead.body == chat_body(user="a")
        assert dead.headers["ce_id"] == "a"
        await broker.settled("requests")


async def test_a_structured_event_is_a_request(broker: RealBroker, tmp_path: Path) -> None:
    event = {"specversion": "1.0", "id": "s", "source": "/tests", "type": "request", "data": json.loads(chat_body())}
    async with bus_rig(broker, tmp_path) as bus:
        await broker.send("requests", json.dumps(event).encode(), {"content-type": "application/cloudevents+json"})
        assert (await bus.answers(1))["s"].headers["ce_status"] == "200"


async def test_a_message_chooses_among_the_topics_that_the_binding_allows(broker: RealBroker, tmp_path: Path) -> None:
    await broker.topics("team.answers")
    reply = {"topic": "answers", "allowed": ["team.*"]}
    async with bus_rig(broker, tmp_path, bindings=[binding(broker, reply=reply)]) as bus:
        await bus.send("mine", replyto="team.answers")
        (answer,) = await broker.read("team.answers", 1)
        assert answer.headers["ce_correlationid"] == "mine"
        assert await broker.messages("answers") == []


async def test_a_stream_is_a_sequence_of_messages(broker: RealBroker, tmp_path: Path) -> None:
    words = [b'data: {"choices":[{"index":0,"delta":{"content":"%d"}}]}\n\n' % number for number in range(20)]
    stream = Script(chunks=(*words, b"data: [DONE]\n\n"))
    async with bus_rig(broker, tmp_path, stream, bindings=[binding(broker, stream=True)]) as bus:
        await bus.send("s", body=chat_body(stream=True), key=b"k")
        messages = await broker.read("answers", 21)
        pieces = [each for each in messages if each.headers["ce_type"] == "com.headrace.piece"]
        assert sorted(int(each.headers["ce_sequence"]) for each in pieces) == list(range(20))
        in_order = sorted(pieces, key=lambda each: int(each.headers["ce_sequence"]))
        assert [json.loads(each.body)["choices"][0]["delta"]["content"] for each in in_order] == [
            str(number) for number in range(20)
        ]
        (end,) = [each for each in messages if each.headers["ce_type"] == "com.headrace.end"]
        assert (end.headers["ce_sequence"], end.headers["ce_status"]) == ("20", "200")
        assert {each.headers["ce_streamid"] for each in messages} == {end.headers["ce_streamid"]}


async def test_messages_of_one_key_run_one_after_another(broker: RealBroker, tmp_path: Path) -> None:
    slow = Script(chunks=(ANSWER,), latency=0.01)
    async with bus_rig(broker, tmp_path, slow, bindings=[binding(broker, order="key", concurrency=16)]) as bus:
        for number in range(30):
            await bus.send(f"a{number:02}", key=b"a")
        await bus.send(*[f"other{number}" for number in range(5)])
        await bus.answers(35)
        users = [str(call.request.user) for call in bus.fake.calls]
        assert [user for user in users if user.startswith("a")] == [f"a{number:02}" for number in range(30)]


async def test_a_stuck_model_stops_reading_and_nothing_is_lost(broker: RealBroker, tmp_path: Path) -> None:
    stuck = Script(chunks=(ANSWER,), latency=4.0)
    scripts = [stuck] * 4
    async with bus_rig(broker, tmp_path, *scripts, WHOLE, bindings=[binding(broker, concurrency=4)]) as bus:
        await bus.send(*[f"id{number}" for number in range(40)])
        await bus.until(lambda: len(bus.fake.calls) == 4)
        await asyncio.sleep(2.5)  # longer than `takeover`, and than the acknowledgements of the broker
        assert bus.consumer.held == 4
        assert len(bus.fake.calls) == 4
        assert len(await bus.answers(40)) == 40
        assert len(bus.fake.calls) == 40
        await broker.settled("requests")
