"""Requests of Converse's clients as messages of Anthropic's API, which every pool of chats serves.

A field of Converse without an equivalent is refused by its name. Fields that Converse has not yet are left out and
reported, in every object. Cache points become marks of the block before them.
"""

import base64
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from adapters.errors import CallerError
from adapters.wire import decoding
from adapters.wire.anthropic import requests as messages
from adapters.wire.anthropic.message_request import MessagesRequest, TokenCount
from adapters.wire.body import field, open_body, with_last_fields

Object = dict[str, Any]

_HINTS = frozenset({"additionalModelResponseFieldPaths", "performanceConfig", "requestMetadata", "serviceTier"})
"""Fields that change no answer; the gateway has its own of each."""
_INFERENCE = {
    "maxTokens": "max_tokens", "temperature": "temperature", "topP": "top_p", "stopSequences": "stop_sequences",
}  # fmt: skip
_IMAGES = frozenset({"png", "jpeg", "gif", "webp"})
_TEXTS = frozenset({"csv", "html", "md", "txt"})
_DOCUMENT = frozenset({"citations", "context", "format", "name", "source"})

_FREE = frozenset({
    "additionalModelRequestFields", "guardrailConfig", "input", "json", "promptVariables", "requestMetadata",
})  # fmt: skip
"""Objects whose fields are another one's."""
_NAMES = _HINTS | _INFERENCE.keys() | _DOCUMENT | _FREE | {
    "any", "audio", "auto", "bucketOwner", "bytes", "cachePoint", "citationsContent", "content", "description",
    "document", "effort", "enabled", "guardContent", "image", "inferenceConfig", "inputSchema", "jsonSchema", "latency",
    "messages", "outputConfig", "reasoningContent", "reasoningText", "redactedContent", "role", "s3Location", "schema",
    "searchResult", "signature", "status", "strict", "structure", "system", "systemTool", "text", "textFormat", "title",
    "tool", "toolChoice", "toolConfig", "toolResult", "toolSpec", "toolUse", "toolUseId", "tools", "ttl", "type", "uri",
    "video",
}  # fmt: skip
"""The fields of Converse's requests, November 2026."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_any = msgspec.json.Decoder()


def decode(body: bytes) -> MessagesRequest:
    """The message of a Converse request, whose body has the `model` and `stream` of its path too. Raises `CallerError`
    that names the field at fault."""
    fields = {name: field(raw_fields, name, _any) for raw_fields in (open_body(body),) for name in raw_fields}
    model, stream = fields.pop("model", None), fields.pop("stream", False)
    left_out = dict[str, None]()
    try:
        fields = _without_new(fields, left_out)
        message = _translated(fields) | {"model": model, "stream": stream}
        encoded = {name: Raw(_encode(value)) for name, value in message.items()}
    except RecursionError:
        raise _own(CallerError("The request is nested too deeply.", code="invalid_json")) from None
    return messages.message_of_fields(encoded, len(body), (*sorted(_HINTS.intersection(fields)), *left_out))


def _without_new(value: Any, left_out: dict[str, None]) -> Any:
    """The value without fields that are new; their names are added to `left_out`. An object that has no others is
    unchanged, so that a block of a new kind is refused by its name."""
    if isinstance(value, list):
        return [_without_new(each, left_out) for each in value]
    if not isinstance(value, dict) or (value and _NAMES.isdisjoint(value)):
        return value
    left_out.update(dict.fromkeys(name for name in value if name not in _NAMES))
    return {
        name: given if name in _FREE else _without_new(given, left_out)
        for name, given in value.items()
        if name in _NAMES
    }


def decode_count(body: bytes) -> TokenCount:
    """The count of a request for `Converse` or `InvokeModel`, whose body has the `model` of its path too. Raises
    `CallerError` that names the field at fault."""
    fields = open_body(body)
    given = field(fields, "input", _any, required=True)
    if not isinstance(given, dict) or len(given) != 1:
        raise _shape("input")
    model = field(fields, "model", _any)
    match given:
        case {"converse": dict(converse)}:
            return messages.count_of(decode(_encode({**converse, "model": model, "stream": False})))
        case {"invokeModel": {"body": str(encoded)}}:
            try:
                inner = base64.b64decode(encoded, validate=True)
            except ValueError:
                raise _shape("input.invokeModel.body") from None
            return messages.decode_cloud_count(with_last_fields(inner, {"model": model}))
    raise _unsupported(f"input.{next(iter(given))}")


def _translated(fields: Object) -> Object:
    message: Object = {}
    for name, value in fields.items():
        if value is None:
            continue
        if (translate := _FIELDS.get(name)) is not None:
            message |= translate(value)
        elif name not in _HINTS:
            raise _unsupported(name)
    return message


def _unsupported(name: str) -> CallerError:
    message = f"`{name}` has no equivalent for the models of this gateway: leave it out."
    return _own(CallerError(message, param=name, code="unsupported_parameter"))


def _shape(name: str) -> CallerError:
    return _own(CallerError(f"`{name}` has not the form that Converse demands.", param=name))


def _own(error: CallerError) -> CallerError:
    error.own_words = True
    return error


def _objects(value: Any, name: str) -> list[Object]:
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise _shape(name)
    return value


def _blocks(value: Any, name: str) -> list[Object]:
    """Translate blocks; a cache point marks the block before it."""
    made: list[Object] = []
    for i, block in enumerate(_objects(value, name)):
        if "cachePoint" in block:
            if made:
                made[-1]["cache_control"] = _mark(block["cachePoint"])
            continue
        kind = next(iter(block), "")
        if (translate := _BLOCKS.get(kind)) is None or len(block) != 1:
            raise _unsupported(f"{name}.{i}.{kind}")
        try:
            made.append(translate(block[kind], f"{name}.{i}.{kind}"))
        except (KeyError, TypeError, AttributeError):
            raise _shape(f"{name}.{i}.{kind}") from None
    return made


def _mark(point: Any) -> Object:
    ttl = point.get("ttl") if isinstance(point, dict) else None
    return {"type": "ephemeral"} | ({} if ttl is None else {"ttl": ttl})


def _text(text: Any, name: str) -> Object:
    if not isinstance(text, str):
        raise _shape(name)
    return {"type": "text", "text": text}


def _image(image: Object, name: str) -> Object:
    if image["format"] not in _IMAGES or set(image["source"]) != {"bytes"}:
        raise _unsupported(name)
    source = {"type": "base64", "media_type": f"image/{image['format']}", "data": image["source"]["bytes"]}
    return {"type": "image", "source": source}


def _document(document: Object, name: str) -> Object:
    source, form = document["source"], document.get("format", "txt")
    if form == "pdf" and "bytes" in source:
        made: Object = {"type": "base64", "media_type": "application/pdf", "data": source["bytes"]}
    elif form in _TEXTS and ("text" in source or "bytes" in source):
        text = source["text"] if "text" in source else _decoded(source["bytes"], name)
        made = {"type": "text", "media_type": "text/plain", "data": text}
    else:
        raise _unsupported(name)
    if unknown := document.keys() - _DOCUMENT:
        raise _unsupported(f"{name}.{min(unknown)}")
    more = {key: document[key] for key in ("context", "citations") if document.get(key) is not None}
    return {"type": "document", "source": made, "title": document["name"], **more}


def _decoded(data: str, name: str) -> str:
    try:
        return base64.b64decode(data, validate=True).decode()
    except ValueError:
        raise _shape(name) from None


def _tool_use(use: Object, name: str) -> Object:
    return {"type": "tool_use", "id": use["toolUseId"], "name": use["name"], "input": use["input"]}


def _tool_result(result: Object, name: str) -> Object:
    content = [
        {"text": _encode(part["json"]).decode()} if "json" in part else part
        for part in _objects(result["content"], f"{name}.content")
    ]
    made = {"type": "tool_result", "tool_use_id": result["toolUseId"], "content": _blocks(content, f"{name}.content")}
    return made | ({"is_error": True} if result.get("status") == "error" else {})


def _reasoning(reasoning: Object, name: str) -> Object:
    if "redactedContent" in reasoning:
        return {"type": "redacted_thinking", "data": reasoning["redactedContent"]}
    text = reasoning["reasoningText"]
    return {"type": "thinking", "thinking": text["text"], "signature": text.get("signature", "")}


_BLOCKS: Mapping[str, Callable[[Any, str], Object]] = {
    "text": _text,
    "image": _image,
    "document": _document,
    "toolUse": _tool_use,
    "toolResult": _tool_result,
    "reasoningContent": _reasoning,
}


def _messages(value: Any) -> Object:
    turns = [
        {"role": turn.get("role"), "content": _blocks(turn.get("content"), f"messages.{i}.content")}
        for i, turn in enumerate(_objects(value, "messages"))
    ]
    return {"messages": turns}


def _inference(value: Any) -> Object:
    if not isinstance(value, dict):
        raise _shape("inferenceConfig")
    if unknown := [name for name in value if name not in _INFERENCE]:
        raise _unsupported(f"inferenceConfig.{min(unknown)}")
    return {_INFERENCE[name]: given for name, given in value.items() if given is not None}


def _tools(value: Any) -> Object:
    if not isinstance(value, dict):
        raise _shape("toolConfig")
    made: list[Object] = []
    for i, tool in enumerate(_objects(value.get("tools"), "toolConfig.tools")):
        if "cachePoint" in tool:
            if made:
                made[-1]["cache_control"] = _mark(tool["cachePoint"])
            continue
        if "toolSpec" not in tool:
            raise _unsupported(f"toolConfig.tools.{i}")
        made.append(_tool(tool["toolSpec"], f"toolConfig.tools.{i}.toolSpec"))
    choice = value.get("toolChoice")
    return {"tools": made} | ({} if choice is None else {"tool_choice": _choice(choice)})


def _tool(spec: Any, name: str) -> Object:
    try:
        made = {"name": spec["name"], "input_schema": spec["inputSchema"]["json"]}
    except (KeyError, TypeError):
        raise _shape(name) from None
    return made | {key: spec[key] for key in ("description", "strict") if spec.get(key) is not None}


def _choice(choice: Any) -> Object:
    match choice:
        case {"auto": dict()}:
            return {"type": "auto"}
        case {"any": dict()}:
            return {"type": "any"}
        case {"tool": {"name": str(name)}}:
            return {"type": "tool", "name": name}
    raise _shape("toolConfig.toolChoice")


def _output(value: Any) -> Object:
    match value:
        case {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": {"schema": str(schema)}}}}:
            try:
                made: Object = {"format": {"type": "json_schema", "schema": _decode(schema.encode())}}
            except decoding.MALFORMED_JSON:
                raise _shape("outputConfig.textFormat.structure.jsonSchema.schema") from None
        case dict() if "textFormat" not in value:
            made = {}
        case _:
            raise _shape("outputConfig")
    return {"output_config": made | ({"effort": value["effort"]} if "effort" in value else {})}


def _more(value: Any) -> Object:
    """Fields of the model itself: those of Anthropic's API."""
    if not isinstance(value, dict):
        raise _shape("additionalModelRequestFields")
    return value


_FIELDS: Mapping[str, Callable[[Any], Object]] = {
    "messages": _messages,
    "system": lambda value: {"system": _blocks(value, "system")},
    "inferenceConfig": _inference,
    "toolConfig": _tools,
    "outputConfig": _output,
    "additionalModelRequestFields": _more,
}
