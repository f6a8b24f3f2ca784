"""Translates a chat into a request of Gemini's `generateContent`.

Parts without an equivalent there are left out and reported, or refused, as `ignored_fields` decides.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Raw

from adapters.errors import CallerError
from adapters.ignored_fields import IgnoredFields, with_allowed_tools
from adapters.requests import Fields
from adapters.wire.body import field, is_given
from adapters.wire.gemini import generations
from adapters.wire.gemini.cache_points import CachePlace
from adapters.wire.gemini.contents import turns_of
from adapters.wire.gemini.generations import ModelGeneration
from adapters.wire.gemini.schemas import reduced
from adapters.wire.gemini.tools import tools_of
from adapters.wire.openai.request_codec import UNBOUNDED
from adapters.wire.openai.thinking import THINKING_FIELDS, ChatThinking, thinking_of_chat
from adapters.wire.prompt_cache import BEFORE, ChatMark, ttl_of

Object = dict[str, Any]

_SAME = {
    "frequency_penalty": "frequencyPenalty",
    "presence_penalty": "presencePenalty",
    "temperature": "temperature",
    "top_k": "topK",
    "top_p": "topP",
}
"""Fields of the sampling that only have another name."""
_TRANSLATED = (
    "cache_control", "include_reasoning", "logprobs", "max_completion_tokens", "max_tokens", "messages", "n",
    "parallel_tool_calls", "reasoning_effort", "response_format", "safety_settings", "seed", "service_tier", "stop",
    "thinking", "tool_choice", "tools", "top_logprobs",
)  # fmt: skip
_TRANSLATABLE = frozenset((
    *_SAME, *_TRANSLATED, *THINKING_FIELDS, "add_generation_prompt", "continue_final_message", "model",
    "stream", "stream_options",
))  # fmt: skip
_THOUGHTS = frozenset(("include_reasoning", "reasoning_effort", "thinking", *THINKING_FIELDS))
MAX_STOPS = 5
MAX_SEED = 2**31 - 1
_TIERS = {"flex": "flex", "priority": "priority", "default": "standard"}

_encode = msgspec.json.Encoder().encode
_any = msgspec.json.Decoder()
_string = msgspec.json.Decoder(str | None)
_flag = msgspec.json.Decoder(bool | None)
_count = msgspec.json.Decoder(int | None)
_stop = msgspec.json.Decoder(str | list[str] | None)
_thinking = msgspec.json.Decoder(ChatThinking | None)


class _Schema(msgspec.Struct):
    schema: Raw = Raw(b"{}")


class _ResponseFormat(msgspec.Struct):
    type: Literal["text", "json_schema", "json_object"] = "text"
    json_schema: _Schema | None = None


_response_format = msgspec.json.Decoder(_ResponseFormat | None)


class ContentFields(NamedTuple):
    """The fields of `generateContent`, and the marks of caches in them, in any order."""

    fields: Object
    places: list[CachePlace]


def content_fields(
    fields: Fields, model: str, ignored: IgnoredFields, *, of_vertex: bool, marks: Sequence[ChatMark] = ()
) -> ContentFields:
    """The fields of `generateContent` for a chat's. `of_vertex`: for Vertex AI, which takes no ids of calls.
    `marks` are those of caches that the chat itself does not have.

    Fields without effect are added to `ignored`. Raises `CallerError`.
    """
    fields = with_allowed_tools(fields)
    ignored.sift(fields, _TRANSLATABLE)
    generation = generations.generation_of(model)
    system, contents, places = turns_of(fields, generation, ignored, has_ids=not of_vertex, marks=marks)
    body: Object = {"contents": contents}
    if system:
        body["systemInstruction"] = {"parts": system}
    body |= tools_of(fields, generation, ignored, places)
    places += [CachePlace(BEFORE, 0, mark.ttl) for mark in marks if mark.message == BEFORE]
    if "cache_control" in fields and (ttl := ttl_of(field(fields, "cache_control", _any))) is not None:
        places.append(CachePlace(len(contents) - 1, len(contents[-1]["parts"]), ttl))
    if config := _config(fields, generation, ignored):
        body["generationConfig"] = config
    if is_given(fields, "safety_settings"):
        body["safetySettings"] = fields["safety_settings"]
    tier = field(fields, "service_tier", _string)
    if tier in _TIERS and not of_vertex:
        if tier != "default":
            body["serviceTier"] = _TIERS[tier]
    elif tier not in (None, "auto", "default"):
        ignored.ignore("service_tier")
    return ContentFields(body, places)


def _config(fields: Fields, generation: ModelGeneration, ignored: IgnoredFields) -> Object:
    """The field `generationConfig`."""
    config: Object = {name: fields[own] for own, name in _SAME.items() if is_given(fields, own)}
    for name in ("max_completion_tokens", "max_tokens"):
        if fields.get(name) != UNBOUNDED and (most := field(fields, name, _count)) is not None:
            config["maxOutputTokens"] = most
            break
    if (seed := field(fields, "seed", _count)) is not None:
        config["seed"] = seed if abs(seed) <= MAX_SEED else seed & MAX_SEED
    if (count := field(fields, "n", _count)) is not None and count != 1:
        config["candidateCount"] = count
    if stops := ignored.stops(field(fields, "stop", _stop)):
        if len(stops) > MAX_STOPS:
            raise CallerError(f"`stop` has {len(stops)} texts, and this model takes {MAX_STOPS}.", param="stop")
        config["stopSequences"] = stops
    if field(fields, "logprobs", _flag):
        config["responseLogprobs"] = True
        if (top := field(fields, "top_logprobs", _count)) is not None:
            config["logprobs"] = top
    return config | _format(fields, generation) | _thoughts(fields, generation, ignored)


def _format(fields: Fields, generation: ModelGeneration) -> Object:
    """The form of the answer."""
    requested = field(fields, "response_format", _response_format)
    if requested is None or requested.type == "text":
        return {}
    config: Object = {"responseMimeType": "application/json"}
    if requested.type == "json_schema":
        if requested.json_schema is None:
            raise CallerError("`response_format.json_schema` is missing.", param="response_format")
        if generation.json_schema:
            config["responseJsonSchema"] = requested.json_schema.schema
        else:
            config["responseSchema"] = reduced(_any.decode(requested.json_schema.schema), "response_format")
    return config


def _thoughts(fields: Fields, generation: ModelGeneration, ignored: IgnoredFields) -> Object:
    """The effort of thinking. Thoughts are shown to a client that names an effort or asks for them."""
    if _THOUGHTS.isdisjoint(fields):
        return {}
    effort, budget = field(fields, "reasoning_effort", _string), None
    shown = field(fields, "include_reasoning", _flag)
    thinking = field(fields, "thinking", _thinking)
    if thinking is None and (wish := thinking_of_chat(fields)) is not None:
        thinking = ChatThinking(**wish)
    if thinking is not None:
        if thinking.type == "disabled":
            effort = "none"
        budget = thinking.budget_tokens
        shown = thinking.type != "disabled" if shown is None else shown
    if effort is not None and generations.budget_of(effort) is None:
        message = "`reasoning_effort` is none, minimal, low, medium, high or xhigh."
        raise CallerError(message, param="reasoning_effort")
    if effort is None and budget is None and not shown:
        return {}
    if not generation.thinking:
        if effort not in (None, "none") or budget is not None:
            ignored.ignore("reasoning_effort")
        return {}
    config = _effort(generation, effort, budget)
    if effort == "none" and config.get("thinkingBudget") != 0:
        ignored.ignore("reasoning_effort")
        shown = False
    if effort != "none" and shown is not False:
        config["includeThoughts"] = True
    return {"thinkingConfig": config} if config else {}


def _effort(generation: ModelGeneration, effort: str | None, budget: int | None) -> Object:
    if effort is None and budget is None:
        return {}
    if generation.thinking == "level":
        return {"thinkingLevel": generations.level_of(generation, effort or generations.word_of(budget or 0))}
    tokens = budget if budget is not None else generations.budget_of(effort or "") or 0
    return {"thinkingBudget": generations.clamped(generation, tokens)}


def encoded(body: Object) -> bytes:
    """The body's bytes."""
    return _encode(body)
