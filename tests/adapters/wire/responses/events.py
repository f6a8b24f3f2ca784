"""Reads the events of a streamed Response, as the official client does."""

import json
from typing import Any

from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

STREAM_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def parsed(written: bytes) -> list[dict[str, Any]]:
    """Each event valid by the client's models, named as its type, numbered in order."""
    events = []
    for event in written.decode().split("\n\n"):
        if event:
            name, data = event.split("\n")
            fields = json.loads(data.removeprefix("data: "))
            assert name == f"event: {fields['type']}"
            STREAM_EVENT.validate_python(fields)
            events.append(fields)
    assert [one["sequence_number"] for one in events] == list(range(len(events)))
    return events
