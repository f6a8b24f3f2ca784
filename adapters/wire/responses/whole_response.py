"""A whole Response as a stream, for servers that do not stream although a client has asked for it."""

from collections.abc import Iterator
from typing import Any

import msgspec

from adapters.wire import decoding

Object = dict[str, Any]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Object).decode
_TEXTS = {"output_text": ("output_text", "text"), "refusal": ("refusal", "refusal")}


def events_of_response(body: bytes) -> bytes:
    """Return the events of a Response. Raises `BackendError` for a malformed one."""
    response = decoding.decode(_decode, body)
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    last = "incomplete" if response.get("status") == "incomplete" else "completed"
    events = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        *(event for index, item in enumerate(_objects(response.get("output"))) for event in _item(index, item)),
        {"type": f"response.{last}", "response": response},
    ]
    return b"".join(
        b"event: %b\ndata: %b\n\n" % (event["type"].encode(), _encode({**event, "sequence_number": number}))
        for number, event in enumerate(events)
    )


def _item(index: int, item: Object) -> Iterator[Object]:
    """The events of one item. An item of another type than these has no parts of its own."""
    place, id_ = {"output_index": index}, {"output_index": index, "item_id": item.get("id", "")}
    opening, inner = {**item, "status": "in_progress"} if "status" in item else dict(item), list[Object]()
    if item.get("type") == "message":
        opening["content"] = []
        for number, part in enumerate(_objects(item.get("content"))):
            inner += _part({**id_, "content_index": number}, part)
    elif item.get("type") == "function_call":
        opening["arguments"], arguments = "", item.get("arguments", "")
        inner.append({"type": "response.function_call_arguments.delta", **id_, "delta": arguments})
        named = {"name": item.get("name", ""), "arguments": arguments}
        inner.append({"type": "response.function_call_arguments.done", **id_, **named})
    yield {"type": "response.output_item.added", **place, "item": opening}
    yield from inner
    yield {"type": "response.output_item.done", **place, "item": item}


def _objects(value: Any) -> list[Object]:
    """The objects of a list; anything else is left out."""
    return [each for each in (value if isinstance(value, list) else ()) if isinstance(each, dict)]


def _part(place: Object, part: Object) -> Iterator[Object]:
    kind, field = _TEXTS.get(str(part.get("type")), ("", ""))
    yield {"type": "response.content_part.added", **place, "part": {**part, field: ""} if kind else part}
    if kind:
        more: Object = {"logprobs": part.get("logprobs") or []} if kind == "output_text" else {}
        yield {"type": f"response.{kind}.delta", **place, "delta": part.get(field, ""), **more}
        yield {"type": f"response.{kind}.done", **place, field: part.get(field, ""), **more}
    yield {"type": "response.content_part.done", **place, "part": part}
