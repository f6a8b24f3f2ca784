"""Messages of real brokers meet the guards of their tenant, their model and their route."""

import json
from pathlib import Path
from typing import Any

import pytest

from adapters.fake import Script
from adapters.requests import GenerateRequest
from tests.support.brokers.broker import RealBroker
from tests.support.brokers.rig import ANSWER, WHOLE, binding, bus_rig, chat_body

TEXT = "I do not talk about this."
WORDS: dict[str, Any] = {"name": "words", "kind": "words", "words": ["zebra"]}
MESSAGE = {"role": "assistant", "content": "a zebra lives here"}
SPEAKS = Script(chunks=(json.dumps({"choices": [{"index": 0, "message": MESSAGE}]}).encode(),))


def guards(action: str, *sides: str, **fields: Any) -> dict[str, Any]:
    """The parts of a configuration whose only model has a guard."""
    text = {"text": TEXT} if action == "replace" else {}
    return {
        "guards": [{**WORDS, "action": action, "on": sides, **text, **fields}],
        "models": [{"name": "chat", "guards": ["words"], "routes": [{"to": "main"}]}],
    }


def about(text: str, **fields: Any) -> bytes:
    return chat_body(messages=[{"role": "user", "content": text}], **fields)


def content(answer: Any) -> str:
    return str(json.loads(answer.body)["choices"][0]["message"]["content"])


async def test_a_blocked_prompt_is_answered_once_and_reaches_no_server(broker: RealBroker, tmp_path: Path) -> None:
    """It is the client's own failure: no attempt repeats it."""
    one = binding(broker, attempts=3)
    async with bus_rig(broker, tmp_path, bindings=[one], **guards("block", "prompt")) as bus:
        await bus.send("a", body=about("a zebra"))
        (answer,) = (await bus.answers(1)).values()
        assert (answer.headers["ce_status"], answer.headers["ce_type"]) == ("400", "com.headrace.error")
        assert json.loads(answer.body)["error"]["code"] == "content_filter"
        await broker.settled("requests")
        await bus.send("b", body=about("a horse"))
        assert (await bus.answers(2))["b"].headers["ce_status"] == "200"
        assert len(bus.fake.calls) == 1
        verdicts = [record.guards for record in bus.rig.log.records]
        assert verdicts == [{("words", "block", "enforce", "prompt"): 1}, None]


async def test_a_masked_prompt_reaches_the_server_with_masks(broker: RealBroker, tmp_path: Path) -> None:
    async with bus_rig(broker, tmp_path, **guards("mask", "prompt")) as bus:
        await bus.send("a", body=about("a zebra"))
        assert (await bus.answers(1))["a"].body == ANSWER
        (call,) = bus.fake.calls
        assert isinstance(call.request, GenerateRequest)
        assert json.loads(bytes(call.request.fields["messages"]))[0]["content"] == "a […]"


@pytest.mark.parametrize(("action", "expected"), [("mask", "a […] lives here"), ("replace", TEXT)])
async def test_an_answer_leaves_as_its_guards_let_it(
    broker: RealBroker, tmp_path: Path, action: str, expected: str
) -> None:
    async with bus_rig(broker, tmp_path, SPEAKS, **guards(action, "answer")) as bus:
        await bus.send("a", body=about("a horse"))
        answer = (await bus.answers(1))["a"]
        assert (answer.headers["ce_status"], content(answer)) == ("200", expected)
        await broker.settled("requests")
        assert b"zebra" not in b"".join(each.body for each in await broker.messages("answers"))


async def test_a_replaced_prompt_is_answered_without_a_server(broker: RealBroker, tmp_path: Path) -> None:
    async with bus_rig(broker, tmp_path, **guards("replace", "prompt")) as bus:
        await bus.send("a", body=about("a zebra"))
        answer = (await bus.answers(1))["a"]
        assert (answer.headers["ce_status"], content(answer)) == ("200", TEXT)
        assert not bus.fake.calls


@pytest.mark.parametrize("action", ["mask", "block"])
async def test_no_piece_of_a_stream_has_a_forbidden_text(broker: RealBroker, tmp_path: Path, action: str) -> None:
    parts = ["the ze", "bra ", "sleeps", " now"]
    events = [b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % part.encode() for part in parts]
    stream = Script(chunks=(*events, b"data: [DONE]\n\n"))
    one = binding(broker, stream=True, attempts=1)
    async with bus_rig(broker, tmp_path, stream, bindings=[one], **guards(action, "answer")) as bus:
        await bus.send("s", body=about("hi", stream=True))
        await bus.until(lambda: bus.consumer.held == 0 and sum(bus.consumer.counts.outcomes.values()) == 1)
        messages = await broker.messages("answers")
        pieces = [each for each in messages if each.headers["ce_type"] == "com.headrace.piece"]
        pieces.sort(key=lambda each: int(each.headers["ce_sequence"]))
        deltas = [json.loads(each.body) for each in pieces]
        text = "".join(str(each["choices"][0]["delta"].get("content", "")) for each in deltas if each.get("choices"))
        if action == "mask":
            assert text == "the […] sleeps now"
        else:
            assert "the zebra sleeps now".startswith(text)
            assert "z" not in text
            assert b"content_filter" in b"".join(each.body for each in messages)


async def test_a_monitored_message_is_counted_and_unchanged(broker: RealBroker, tmp_path: Path) -> None:
    async with bus_rig(broker, tmp_path, WHOLE, **guards("block", "prompt", mode="monitor")) as bus:
        await bus.send("a", body=about("a zebra"))
        assert (await bus.answers(1))["a"].body == ANSWER
        (record,) = bus.rig.log.records
        assert record.guards == {("words", "block", "monitor", "prompt"): 1}
