"""Translates plain chats into requests for Converse in one step, without the message between them.

Plain are texts, calls of tools and their results, with ids and names that Bedrock takes: most chats. Every other chat,
and one with an error, takes the way through a message (`message_to_converse`). Both ways give the same request.
"""

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Raw

from adapters.ignored_fields import IgnoredFields
from adapters.requests import Fields
from adapters.wire.anthropic import call_ids
from adapters.wire.anthropic.chat_turns import NO_TEXT, ChatCall
from adapters.wire.bedrock.content import Object
from adapters.wire.bedrock.message_to_converse import COUNT, SHARE, ConverseOptions, named_betas
from adapters.wire.decoding import MALFORMED_JSON
from adapters.wire.openai.request_codec import UNBOUNDED

_FIELDS = frozenset({
    "max_completion_tokens", "max_tokens", "messages", "model", "parallel_tool_calls", "stream", "stream_options",
    "temperature", "tool_choice", "tools", "top_p",
})  # fmt: skip
_NEUTRAL = {"parallel_tool_calls": (b"true", b"null"), "tool_choice": (b'"auto"', b"null")}
"""The values of fields that change nothing."""
_WORD = re.compile(r"[A-Za-z0-9_-]{1,64}").fullmatch
"""A name that stays as it is, and an id."""
_CALL_ID = re.compile(rf"(?!{call_ids.PREFIX})[A-Za-z0-9_-]{{1,64}}").fullmatch


class _Message(msgspec.Struct, forbid_unknown_fields=True):
    """Fields without a default but null have no equivalent, or one that is not plain."""

    role: str
    content: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[ChatCall] | None = None
    refusal: None = None
    name: str | None = None
    reasoning_content: Any = None
    annotations: Any = None
    function_call: None = None


class _Declared(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    parameters: dict[str, Raw]
    description: str | None = None
    strict: bool | None = None


class _Tool(msgspec.Struct, forbid_unknown_fields=True):
    function: _Declared
    type: Literal["function"] = "function"


class _NotPlainError(Exception):
    """The chat takes the other way."""


_messages = msgspec.json.Decoder(list[_Message]).decode
_tools = msgspec.json.Decoder(list[_Tool] | None).decode
_arguments = msgspec.json.Decoder(dict[str, Raw]).decode


def plain_fields(fields: Fields, options: ConverseOptions, max_tokens: int | None) -> Object | None:
    """The fields of a request for Converse; None for a chat that is not plain. `max_tokens` applies to a chat without a
    limit."""
    if not _FIELDS.issuperset(fields) or options.family == "mistral":
        return None  # Mistral's ids have a form of their own
    try:
        for name, values in _NEUTRAL.items():
            if name in fields and bytes(fields[name]) not in values:
                return None
        tools = _tool_config(fields)
        body = _conversation(_messages(fields["messages"]), has_tools=bool(tools))
        inference = _inference(fields, max_tokens)
    except (_NotPlainError, KeyError, *MALFORMED_JSON):
        return None
    if tools:
        body["toolConfig"] = {"tools": tools}
    if inference:
        body["inferenceConfig"] = inference
    if named := named_betas(options, (), IgnoredFields()):
        body["additionalModelRequestFields"] = {"anthropic_beta": named}
    return body


def _tool_config(fields: Fields) -> list[Object]:
    entries = list[Object]()
    if "tools" not in fields:
        return entries
    for tool in _tools(fields["tools"]) or ():
        function = tool.function
        if not _WORD(function.name):
            raise _NotPlainError
        schema = function.parameters or {"properties": Raw(b"{}")}
        if "type" not in schema:
            schema = {"type": Raw(b'"object"'), **schema}
        spec: Object = {"name": function.name, "inputSchema": {"json": schema}}
        if function.description:
            spec["description"] = function.description
        if function.strict:
            spec["strict"] = True
        entries.append({"toolSpec": spec})
    return entries


def _inference(fields: Mapping[str, Raw], max_tokens: int | None) -> Object:
    """`inferenceConfig`. Raises msgspec's errors for numbers outside of Converse's bounds."""
    made: Object = {}
    for name in ("max_completion_tokens", "max_tokens"):
        if fields.get(name, UNBOUNDED) != UNBOUNDED and (most := COUNT.decode(fields[name])) is not None:
            made["maxTokens"] = most
            break
    else:
        if max_tokens is not None:
            made["maxTokens"] = max_tokens
    for name, own in (("temperature", "temperature"), ("top_p", "topP")):
        if name in fields and (share := SHARE.decode(fields[name])) is not None:
            made[own] = share
    return made


def _conversation(messages: list[_Message], *, has_tools: bool) -> Object:
    """The system prompt and the turns."""
    system, turns, calls = list[Object](), list[Object](), dict[str, bool]()
    role, content = "", list[Object]()
    for message in messages:
        given, text = message.role, message.content
        if (given == "tool") != (message.tool_call_id is not None):
            raise _NotPlainError
        blocks: list[Object] = [{"text": text}] if text and not text.isspace() else []
        if given == "assistant":
            if message.tool_calls:
                blocks += _calls(message.tool_calls, calls, has_tools=has_tools)
        elif message.tool_calls is not None:
            raise _NotPlainError
        elif given == "tool":
            blocks = [_result(message, blocks, calls)]
            if role == "user" and "toolResult" not in content[-1]:
                raise _NotPlainError  # results come before other blocks
            given = "user"
        elif given != "user":
            if given not in ("system", "developer") or turns:
                raise _NotPlainError
            system += blocks
            given = ""
        if not blocks:
            raise _NotPlainError  # a turn without anything to read
        if given == role:
            content += blocks
        elif given:
            role, content = given, blocks
            turns.append({"role": role, "content": content})
    if role != "user" or turns[0]["role"] != "user":
        raise _NotPlainError
    return {"messages": turns, "system": system} if system else {"messages": turns}


def _calls(given: list[ChatCall], calls: dict[str, bool], *, has_tools: bool) -> list[Object]:
    """The blocks of calls. They are added to `calls`, which has whether a call waits for its result."""
    blocks = list[Object]()
    for call in given:
        id_, function = call.id, call.function
        if id_ in calls or not (has_tools and _WORD(function.name) and _CALL_ID(id_)):
            raise _NotPlainError
        calls[id_] = True
        input_ = _arguments(function.arguments or "{}")
        blocks.append({"toolUse": {"toolUseId": id_, "name": function.name, "input": input_}})
    return blocks


def _result(message: _Message, texts: list[Object], calls: dict[str, bool]) -> Object:
    """The block of a result, whose call must wait for it."""
    id_ = message.tool_call_id
    if id_ is None or message.content is None or not calls.get(id_):
        raise _NotPlainError
    calls[id_] = False
    return {"toolResult": {"toolUseId": id_, "content": texts or [{"text": NO_TEXT}]}}
