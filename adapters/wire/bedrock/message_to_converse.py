"""Translates a message into a request for Converse.

A chat becomes a message first (`adapters/wire/anthropic/chat_to_message.py`), so both have one translation. Parts
without an equivalent are left out and reported, or refused, as `ignored_fields` decides.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta, Raw

from adapters.errors import CallerError
from adapters.ignored_fields import IgnoredFields
from adapters.requests import Fields
from adapters.wire.anthropic import blocks
from adapters.wire.anthropic.chat_turns import NO_TEXT, without_own_thoughts
from adapters.wire.bedrock.content import ConverseBlocks, Object, cache_point, tool_name
from adapters.wire.bedrock.models import Family
from adapters.wire.body import field, is_given
from adapters.wire.openai.known_fields import DefinedFields, LeftOut

_TRANSLATABLE = frozenset({
    "cache_control", "max_tokens", "messages", "metadata", "model", "output_config", "service_tier", "stop_sequences",
    "stream", "system", "temperature", "thinking", "tool_choice", "tools", "top_k", "top_p",
})  # fmt: skip
BETAS = frozenset({
    "context-1m-2025-08-07", "dev-full-thinking-2025-05-14", "fine-grained-tool-streaming-2025-05-14",
    "interleaved-thinking-2025-05-14", "output-128k-2025-02-19", "token-efficient-tools-2025-02-19",
})  # fmt: skip
"""A client's betas that Bedrock has and that need no field which Converse lacks. It refuses a request with another."""
_STOP_PATHS = ("/stop_sequence", "/delta/stop_sequence")
"""Where Anthropic's models report the stop text: in an answer, and in a stream."""
_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
"""The efforts of other makers than Anthropic."""
_LEVELS: dict[Family, Callable[[str], Object]] = {
    "nova": lambda level: {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": level}},
    "openai": lambda level: {"reasoning_effort": level},
}
_TIERS = frozenset({"default", "flex", "priority"})
_NO_CHAT: Fields = {}
_TOP_K: dict[Family, Callable[[int], Object]] = {
    "anthropic": lambda top_k: {"top_k": top_k},
    "mistral": lambda top_k: {"top_k": top_k},
    "nova": lambda top_k: {"inferenceConfig": {"topK": top_k}},
}

_encode = msgspec.json.Encoder().encode


class _Turn(msgspec.Struct, forbid_unknown_fields=True):
    role: Literal["user", "assistant", "system"]
    content: str | list[blocks.Block]


class _Tool(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    input_schema: dict[str, Raw]
    type: Literal["custom"] | None = None
    description: str | None = None
    strict: bool | None = None
    cache_control: Any = None


class _Kind(msgspec.Struct):
    type: str | None = None


class _Choice(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class _Format(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["json_schema"]
    schema: Raw


class _OutputConfig(msgspec.Struct, forbid_unknown_fields=True):
    effort: str | None = None
    format: _Format | None = None


class _Thinking(msgspec.Struct):
    type: str
    budget_tokens: int | None = None


_turns = DefinedFields[list[_Turn]](list[_Turn])
_System = str | list[blocks.TextBlock | LeftOut] | None
_system = DefinedFields[_System](_System)
_tool = DefinedFields[_Tool](_Tool)
_choice = DefinedFields[_Choice | None](_Choice | None)
_output_config = DefinedFields[_OutputConfig | None](_OutputConfig | None)
_raw_list = msgspec.json.Decoder(list[Raw] | None)
_kind = msgspec.json.Decoder(_Kind)
_thinking = msgspec.json.Decoder(_Thinking | None)
SHARE = msgspec.json.Decoder(Annotated[float, Meta(ge=0, le=1)] | None)
COUNT = msgspec.json.Decoder(Annotated[int, Meta(ge=1)] | None)
_whole = msgspec.json.Decoder(int | None)
_string = msgspec.json.Decoder(str | None)
_stops = msgspec.json.Decoder(list[str] | None)
_any = msgspec.json.Decoder()


class ConverseOptions(NamedTuple):
    """What a pool adds to its requests."""

    family: Family
    betas: tuple[str, ...] = ()


def converse_fields(
    native: Fields, options: ConverseOptions, ignored: IgnoredFields, betas: Sequence[str] = (), chat: Fields = _NO_CHAT
) -> Object:
    """The fields of a request for Converse, for those of a message. `betas` are the client's, and `chat` has the fields
    of the chat that the message was. Fields without effect are added to `ignored`. Raises `CallerError`."""
    ignored.sift(native, _TRANSLATABLE)
    more = dict[str, Any]()
    tools = _tools(native, options.family, more, ignored)
    content = ConverseBlocks(options.family, ignored, has_tools=bool(tools))
    system, messages = _conversation(native, content, options.family, ignored)
    body: Object = {"messages": messages}
    if system:
        body["system"] = system
    if tools:
        body["toolConfig"] = tools
    if inference := _inference(native):
        body["inferenceConfig"] = inference
        if "stopSequences" in inference and options.family == "anthropic":
            body["additionalModelResponseFieldPaths"] = _STOP_PATHS
    if output := _output(native, options.family, more, ignored):
        body["outputConfig"] = output
    more |= _thinking_fields(native, options.family, field(chat, "reasoning_effort", _string), ignored)
    if (tier := field(chat, "service_tier", _string)) in _TIERS:
        body["serviceTier"] = {"type": tier}
    if named := named_betas(options, betas, ignored):
        more["anthropic_beta"] = named
    if more:
        body["additionalModelRequestFields"] = more
    if is_given(native, "metadata"):
        ignored.ignore("user")
    return body


def counted_fields(body: Object) -> Object:
    """The request for a count of the tokens of a request for Converse."""
    counted = ("messages", "system", "toolConfig", "additionalModelRequestFields")
    return {"input": {"converse": {name: body[name] for name in counted if name in body}}}


# ── messages ──────────────────────────────────────────────────────────────────────────────────────────────


def _conversation(
    native: Fields, content: ConverseBlocks, family: Family, ignored: IgnoredFields
) -> tuple[list[Object], list[Object]]:
    """The system prompt, and the turns. Neighbours of one role become one, because most models demand that the roles
    alternate. Only Anthropic's models take a system message between others."""
    system = list[Object]()
    if given := field(native, "system", _system.reporting(ignored)):
        system = content.of(given if isinstance(given, str) else list(given), "system")
    turns = list[Object]()
    own = without_own_thoughts(native) if "messages" in native else native
    for i, turn in enumerate(field(own, "messages", _turns.reporting(ignored), required=True) or ()):
        if not isinstance(turn.content, str):
            _check_blocks(turn, i)
        encoded = content.of(turn.content, turn.role)
        if turn.role == "system" and family != "anthropic":
            system += encoded
        elif turns and turns[-1]["role"] == turn.role:
            turns[-1]["content"] += encoded
        elif encoded or turn.role == "user":
            turns.append({"role": turn.role, "content": encoded})
    for each in turns:
        if len(each["content"]) != 1:
            each["content"] = _ordered(each["content"]) or [{"text": NO_TEXT}]
    if turns and is_given(native, "cache_control"):
        turns[-1]["content"] += cache_point(field(native, "cache_control", _any), ignored)
    return system, turns


_ASSISTANT = (blocks.TextBlock, blocks.ThinkingBlock, blocks.RedactedThinkingBlock, blocks.ToolUseBlock, LeftOut)
_USER = (
    blocks.TextBlock, blocks.ImageBlock, blocks.DocumentBlock, blocks.SearchResultBlock, blocks.ToolResultBlock,
    LeftOut,
)  # fmt: skip
_ALLOWED: dict[str, tuple[type, ...]] = {
    "assistant": _ASSISTANT,
    "user": _USER,
    "system": (blocks.TextBlock, LeftOut),
}


def _check_blocks(turn: _Turn, i: int) -> None:
    """Check that a turn has only blocks of its role. Raises `CallerError`."""
    try:
        blocks.only(turn.content, *_ALLOWED[turn.role])
    except blocks.Untranslatable as error:
        raise CallerError(f"`messages[{i}].content` {error}", param="messages") from None


def _ordered(content: list[Object]) -> list[Object]:
    """All results of tools come before other blocks, with the cache points after them."""
    if not any("toolResult" in block for block in content) or "toolResult" in content[0]:
        return content
    last = max(i for i, block in enumerate(content) if "toolResult" in block)
    if last + 1 < len(content) and "cachePoint" in content[last + 1]:
        last += 1
    results = [
        block
        for i, block in enumerate(content[: last + 1])
        if "toolResult" in block or ("cachePoint" in block and i and "toolResult" in content[i - 1])
    ]
    first = {id(block) for block in results}
    return [*results, *[block for block in content if id(block) not in first]]


# ── tools ─────────────────────────────────────────────────────────────────────────────────────────────────


def _tools(native: Fields, family: Family, more: Object, ignored: IgnoredFields) -> Object:
    """`toolConfig`; empty without tools, or if the model may call none of them."""
    choice = field(native, "tool_choice", _choice.reporting(ignored))
    if choice is not None and choice.type == "none":
        return {}
    entries = list[Object]()
    given = field(native, "tools", _raw_list)
    for i, raw in enumerate(given or ()):
        try:
            kind = _kind.decode(raw).type
            if kind is None or kind == "custom":
                entries += _tool_entries(_tool.reporting(ignored).decode(raw), ignored)
            else:
                ignored.ignore(kind)  # a tool of Anthropic's own servers
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise CallerError(f"`tools[{i}]` is not valid: {error}.", param="tools") from None
    if not entries:
        return {}
    config: Object = {"tools": entries}
    if choice is None:
        return config
    if choice.type == "any":
        config["toolChoice"] = {"any": {}}
    elif choice.type == "tool":
        config["toolChoice"] = {"tool": {"name": tool_name(choice.name or "")}}
    if choice.disable_parallel_tool_use and family == "anthropic":
        named = {} if choice.name is None else {"name": tool_name(choice.name)}
        more["tool_choice"] = {"type": choice.type, **named, "disable_parallel_tool_use": True}
    elif choice.disable_parallel_tool_use:
        ignored.ignore("parallel_tool_calls")
    return config


def _tool_entries(tool: _Tool, ignored: IgnoredFields) -> list[Object]:
    """The tool, and its cache point, which is an entry of its own."""
    spec: Object = {"name": tool_name(tool.name), "inputSchema": {"json": tool.input_schema}}
    if tool.description:
        spec["description"] = tool.description
    if tool.strict:
        spec["strict"] = True
    return [{"toolSpec": spec}, *cache_point(tool.cache_control, ignored)]


# ── the answer ────────────────────────────────────────────────────────────────────────────────────────────


def _inference(native: Fields) -> Object:
    """`inferenceConfig`. Numbers outside of Converse's bounds are refused by the names of their fields."""
    stops = [text for text in field(native, "stop_sequences", _stops) or () if text]
    given = {
        "maxTokens": field(native, "max_tokens", COUNT),
        "temperature": field(native, "temperature", SHARE),
        "topP": field(native, "top_p", SHARE),
        "stopSequences": stops or None,
    }
    return {name: value for name, value in given.items() if value is not None}


def _output(native: Fields, family: Family, more: Object, ignored: IgnoredFields) -> Object:
    """`outputConfig`, and in `more` the fields by which each maker's models think."""
    output: Object = {}
    if (top_k := field(native, "top_k", _whole)) is not None:
        more |= _TOP_K[family](top_k) if family in _TOP_K else _left_out("top_k", ignored)
    config = field(native, "output_config", _output_config.reporting(ignored)) or _OutputConfig()
    if config.format is not None:
        schema = {"name": "answer", "schema": bytes(config.format.schema).decode()}
        output["textFormat"] = {"type": "json_schema", "structure": {"jsonSchema": schema}}
    if config.effort is not None and family == "anthropic":
        output["effort"] = config.effort
    return output


def _thinking_fields(native: Fields, family: Family, effort: str | None, ignored: IgnoredFields) -> Object:
    """The fields by which the models of a maker think. `effort` is a chat's."""
    thinking = field(native, "thinking", _thinking)
    if family == "anthropic":
        return {} if thinking is None else {"thinking": native["thinking"]}
    if effort is None:
        effort = (field(native, "output_config", _output_config.reporting(ignored)) or _OutputConfig()).effort
    enabled = thinking is not None and thinking.type != "disabled"
    level = _EFFORTS.get(effort or "medium" if enabled else effort or "")
    if level is not None and family in _LEVELS:
        return _LEVELS[family](level)
    if effort is not None and effort != "none":
        ignored.ignore("reasoning_effort")
    if enabled:
        ignored.ignore("thinking")
    return {}


def _left_out(name: str, ignored: IgnoredFields) -> Object:
    ignored.ignore(name)
    return {}


def named_betas(options: ConverseOptions, betas: Sequence[str], ignored: IgnoredFields) -> list[str]:
    """The betas of the pool, and those of the client that Bedrock has."""
    if options.family != "anthropic":
        given = list(betas)
    else:
        given = [name for name in betas if name not in BETAS and name not in options.betas]
        betas = [name for name in betas if name in BETAS]
    if given:
        ignored.ignore("betas")
    return list(dict.fromkeys([*options.betas, *betas])) if options.family == "anthropic" else []
