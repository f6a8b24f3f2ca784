"""Reads the events of the Messages and Responses doors as their clients do, and checks the order of the events."""

import json
from typing import Any

from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from adapters.wire import sse

Object = dict[str, Any]
STREAM_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def message_of_events(written: bytes) -> Object:
    """The message that a client assembles from a stream. Blocks follow one another, each begun and ended once."""
    message: Object = {}
    opened: int | None = None
    for event in written.split(b"\n\n"):
        if not event:
            continue
        fields = json.loads(sse.data_of(event))
        assert event.startswith(b"event: " + fields["type"].encode() + b"\n")
        match fields["type"]:
            case "message_start":
                assert not message
                message = fields["message"]
            case "content_block_start":
                assert opened is None
                opened = fields["index"]
                assert opened == len(message["content"])
                message["content"].append(
                    {**fields["content_block"], **({"input": ""} if "input" in fields["content_block"] else {})}
                )
            case "content_block_delta":
                assert fields["index"] == opened
                (name,) = fields["delta"].keys() - {"type"}
                block, text = message["content"][opened], fields["delta"][name]
                name = "input" if name == "partial_json" else name
                block[name] += text
            case "content_block_stop":
                assert fields["index"] == opened
                opened = None
                block = message["content"][fields["index"]]
                if "input" in block:
                    block["input"] = json.loads(block["input"] or "{}")
            case "message_delta":
                assert opened is None
                message |= fields["delta"]
                message["usage"] = {**message["usage"], **fields["usage"]}
    assert fields["type"] == "message_stop"
    return message


def response_events(written: bytes) -> list[Object]:
    """Each event valid by the client's models, named as its type, numbered in order, of an open item."""
    events, opened = [], dict[int, str]()
    for event in written.decode().split("\n\n"):
        if event:
            name, data = event.split("\n")
            fields = json.loads(data.removeprefix("data: "))
            assert name == f"event: {fields['type']}"
            STREAM_EVENT.validate_python(fields)
            events.append(fields)
            if fields["type"] == "response.output_item.added":
                assert fields["output_index"] not in opened
                opened[fields["output_index"]] = "open"
            elif "output_index" in fields:
                assert opened[fields["output_index"]] == "open"
            if fields["type"] == "response.output_item.done":
                opened[fields["output_index"]] = "done"
    assert [one["sequence_number"] for one in events] == list(range(len(events)))
    return events


def response_of_events(written: bytes) -> Object:
    """The complete Response of a stream, whose items are those of its events."""
    events = response_events(written)
    closed = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    response: Object = events[-1]["response"]
    Response.model_validate(response)
    assert sorted(json.dumps(item) for item in closed) == sorted(json.dumps(item) for item in response["output"])
    return response
