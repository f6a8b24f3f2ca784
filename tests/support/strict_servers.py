"""What strict servers refuse in a request, and how each of them answers: pure functions over bodies.

Sources: Anthropic's Messages, OpenAI's chats (a model without reasoning), vLLM's validators with a template whose roles
alternate, Gemini's API in OpenAI's form.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from tests.support.providers import gemini_faults

Object = dict[str, Any]

_ID, _NAME = re.compile(r"[a-zA-Z0-9_-]+"), re.compile(r"[a-zA-Z0-9_-]{1,64}")
_SKIPPED = "skip_thought_signature_validator"


def signature(text: str, server: str) -> str:
    """A server's signature."""
    return server + hashlib.sha256(text.encode()).hexdigest()


def _unknown(where: str, given: Object, allowed: str) -> Iterator[str]:
    for name in given.keys() - set(allowed.split()):
        yield f"{where}.{name}: extra inputs are not permitted"


# ── Anthropic ─────────────────────────────────────────────────────────────────────────────────────────────

_BLOCKS = {
    "text": "type text cache_control",
    "image": "type source cache_control",
    "thinking": "type thinking signature",
    "redacted_thinking": "type data",
    "tool_use": "type id name input cache_control",
    "tool_result": "type tool_use_id content is_error cache_control",
    "server_tool_use": "type id name input",
    "web_search_tool_result": "type tool_use_id content",
}


def anthropic(body: Object) -> Iterator[str]:
    """The faults of a request to `/v1/messages`. The fields of a new client are known: it is its own API."""
    if len(body.get("metadata", {}).get("user_id", "")) > 256:
        yield "metadata.user_id: too long"
    if "tool_choice" in body and not body.get("tools"):
        yield "tool_choice: needs tools"
    for tool in body.get("tools", ()):
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", tool["name"]):
            yield "tools.name: should match pattern"
        if "type" not in tool and tool["input_schema"].get("type") != "object":
            yield "tools.input_schema.type: field required"
    messages = body["messages"]
    if not messages or messages[0]["role"] != "user":
        yield "messages: first message must use the user role"
    ids, due = set[str](), set[str]()
    for turn in messages:
        yield from _unknown("message", turn, "role content")
        blocks = turn["content"]
        if isinstance(blocks, str):
            blocks = [{"type": "text", "text": blocks}]
        if not blocks:
            yield "messages: content must not be empty"
        results = {block.get("tool_use_id") for block in blocks if block["type"] == "tool_result"}
        if results != due:
            yield f"messages: results {results} for calls {due}"
        due = {block["id"] for block in blocks if block["type"] == "tool_use"}
        for block in blocks:
            yield from _block(block, ids)
    if messages and messages[-1]["role"] == "assistant":
        yield "messages: the model does not continue answers"


def _block(block: Object, ids: set[str]) -> Iterator[str]:
    if block["type"] not in _BLOCKS:
        yield f"content: unknown type {block['type']}"
        return
    yield from _unknown(block["type"], block, _BLOCKS[block["type"]])
    if block["type"] == "text" and not block["text"].strip():
        yield "text: must contain non-whitespace text"
    if block["type"] == "thinking" and block["signature"] != signature(block["thinking"], "anthropic"):
        yield "Invalid `signature` in `thinking` block"
    if block["type"] == "redacted_thinking" and not block["data"].startswith("anthropic"):
        yield "Invalid `data` in `redacted_thinking` block"
    if block["type"] == "image" and block["source"].get("media_type") == "image/jpg":
        yield "image: unknown media type"
    if block["type"] == "tool_use":
        if not _ID.fullmatch(block["id"]):
            yield "tool_use.id: should match pattern"
        if block["id"] in ids:
            yield "tool_use.id: must be unique"
        ids.add(block["id"])


# ── chats ─────────────────────────────────────────────────────────────────────────────────────────────────

_MESSAGE = "role content name tool_calls tool_call_id refusal"
_FIELDS = (
    "model messages max_tokens max_completion_tokens stream stream_options temperature top_p stop tools tool_choice "
    "parallel_tool_calls user response_format seed"
)


def _chat(body: Object, message: str = _MESSAGE, call: str = "id type function") -> Iterator[str]:
    """The faults that all of them see."""
    if "tools" in body and not body["tools"]:
        yield "tools: must not be empty"
    if not body.get("tools"):
        yield from (f"{name}: needs tools" for name in ("tool_choice", "parallel_tool_calls") if name in body)
    for tool in body.get("tools", ()):
        if tool["type"] != "function" or not _NAME.fullmatch(tool["function"]["name"]):
            yield f"tools: invalid {tool}"
    due = list[str]()
    if not body["messages"]:
        yield "messages: must not be empty"
    for turn in body["messages"]:
        yield from _unknown("message", turn, message)
        if turn["role"] == "tool":
            if turn["tool_call_id"] not in due:
                yield f"tool_call_id: {turn['tool_call_id']} is not one of {due}"
            due = [id_ for id_ in due if id_ != turn["tool_call_id"]]
            continue
        if due:
            yield f"messages: calls {due} have no results"
        if not turn.get("content") and not turn.get("tool_calls"):
            yield f"messages: a turn of {turn['role']} has no content"
        due = [each["id"] for each in turn.get("tool_calls", ())]
        for each in turn.get("tool_calls", ()):
            yield from _unknown("call", each, call)
            if not _NAME.fullmatch(each["function"]["name"]) or not isinstance(
                json.loads(each["function"]["arguments"]), dict
            ):
                yield f"tool_calls: invalid {each}"
    yield from _parts(body)


def _parts(body: Object) -> Iterator[str]:
    for turn in body["messages"]:
        for part in turn["content"] if isinstance(turn.get("content"), list) else ():
            if part["type"] not in ("text", "image_url", "file"):
                yield f"content: unknown type {part['type']}"
            yield from _unknown("part", part, "type text image_url file")


def openai(body: Object) -> Iterator[str]:
    """The faults of a chat for a model of OpenAI without reasoning."""
    yield from _unknown("body", body, _FIELDS)
    yield from _chat(body)
    if len(body.get("user", "")) > 64:
        yield "user: string too long"
    for turn in body["messages"]:
        if any(len(call["id"]) > 40 for call in turn.get("tool_calls", ())):
            yield "tool_calls.id: string too long"


def vllm(body: Object) -> Iterator[str]:
    """The faults of a chat for vLLM, which takes unknown fields of messages."""
    names = {name for turn in body["messages"] for name in turn}
    yield from _chat(body, " ".join([_MESSAGE, *names]), "id type function extra_content")
    if body.get("reasoning_effort") not in (None, "low", "medium", "high"):
        yield "reasoning_effort: input should be low, medium or high"
    turns = body["messages"]
    roles = [turn["role"] for turn in turns if turn["role"] in ("user", "assistant")]
    if any(one == other == "user" for one, other in pairwise(roles)):
        yield "conversation roles must alternate"


def deepseek(body: Object) -> Iterator[str]:
    """The faults of a chat for DeepSeek and Kimi: once a turn has thoughts, each call must."""
    yield from vllm(body)
    turns = body["messages"]
    calls = [turn for turn in turns if turn.get("tool_calls")]
    if any("reasoning_content" in turn for turn in turns) and not all("reasoning_content" in turn for turn in calls):
        yield "reasoning_content is missing in assistant tool call message"


def gemini(body: Object) -> Iterator[str]:
    """The faults of a chat for Gemini, which refuses a turn whose first call has no signature."""
    yield from _unknown("body", body, _FIELDS + " reasoning_effort extra_body")
    yield from _chat(body, call="id type function extra_content")
    for turn in body["messages"]:
        for call in turn.get("tool_calls", ())[:1]:
            given = call.get("extra_content", {}).get("google", {}).get("thought_signature")
            if given not in (_SKIPPED, signature(call["function"]["arguments"], "gemini")):
                yield "Function call is missing a thought_signature"


def google(body: Object) -> Iterator[str]:
    """The faults of a request in Gemini's own protocol."""
    yield from gemini_faults.faults(body, GOOGLE)


class Strict(NamedTuple):
    """A strict server: its faults of a request, and its dialect; None for a protocol of its own."""

    faults: Callable[[Object], Iterator[str]]
    dialect: str | None


SERVERS = {
    "anthropic": Strict(anthropic, None),
    "openai": Strict(openai, "openai"),
    "vllm": Strict(vllm, "vllm"),
    "gemini": Strict(gemini, "gemini"),
    "deepseek": Strict(deepseek, "auto"),
    "google": Strict(google, None),
}
GOOGLE = "gemini-3-flash"
"""The model of Gemini's own protocol."""


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────


def message_answer(calls: list[str], nth: int) -> Object:
    """A message of Anthropic's with thoughts, a search of its own, a text and calls of tools."""
    thought = f"hm {nth}"
    content: list[Object] = [
        {"type": "thinking", "thinking": thought, "signature": signature(thought, "anthropic")},
        {"type": "redacted_thinking", "data": f"anthropic{nth}"},
        {"type": "server_tool_use", "id": f"srvtoolu_{nth}", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": f"srvtoolu_{nth}", "content": []},
    ]
    content += [{"type": "text", "text": f"said {nth}"}] if nth % 2 or not calls else []
    content += [
        {"type": "tool_use", "id": f"toolu_{nth}_{i}", "name": name, "input": {"n": i}} for i, name in enumerate(calls)
    ]
    reason = "tool_use" if calls else "end_turn"
    usage = {"input_tokens": 1, "output_tokens": 1}
    return {"id": f"msg_{nth}", "type": "message", "role": "assistant", "model": "m", "content": content,
            "stop_reason": reason, "stop_sequence": None, "usage": usage}  # fmt: skip


def google_answer(calls: list[str], nth: int) -> Object:
    """An answer of Gemini's with thoughts, a signed text or signed calls."""
    parts: list[Object] = [{"text": f"hm {nth}", "thought": True}]
    if nth % 2 or not calls:
        parts += [{"text": f"said {nth}"}, {"text": "", "thoughtSignature": gemini_faults.signature(f"said {nth}")}]
    for i, name in enumerate(calls):
        part: Object = {"functionCall": {"name": name, "args": {"n": i}}}
        parts.append(part if i else {**part, "thoughtSignature": gemini_faults.signature(name)})
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    candidate = {"content": {"parts": parts, "role": "model"}, "finishReason": "STOP", "index": 0}
    return {"candidates": [candidate], "usageMetadata": usage}


def chat_answer(server: str, calls: list[str], nth: int) -> Object:
    """A completion with the habits of one server: its ids of calls, its thoughts, its blank texts, its signatures."""
    ids = {
        "openai": f"call_{nth}x{{i}}",
        "vllm": "functions.{name}:{i}",
        "gemini": "call_{i}",
        "deepseek": "{name}-{i}",
    }[server]
    made = list[Object]()
    for i, name in enumerate(calls):
        arguments = json.dumps({"n": i}, separators=(",", ":"))
        call = {
            "id": ids.format(i=i, name=name),
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }
        if server == "gemini" and not i:
            call["extra_content"] = {"google": {"thought_signature": signature(arguments, "gemini")}}
        made.append(call)
    message: Object = {"role": "assistant", "content": f"said {nth}"}
    if made:
        message |= {"tool_calls": made, "content": "\n" if server == "vllm" else None}
    if server in ("vllm", "deepseek"):
        message["reasoning_content"] = f"hm {nth}"
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if made else "stop"}
    return {"id": "chatcmpl-1", "object": "chat.completion", "model": "m", "choices": [choice]}
