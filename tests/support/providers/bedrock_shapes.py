"""What Bedrock refuses in a request: the shapes of AWS's own description, and the rules of its models."""

import hashlib
import json
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

from botocore.loaders import Loader
from botocore.model import ServiceModel

Object = dict[str, Any]


@cache
def service() -> ServiceModel:
    """The description that botocore has."""
    return ServiceModel(Loader().load_service_model("bedrock-runtime", "service-2"), "bedrock-runtime")


def mistakes(operation: str, body: dict[str, Any]) -> Iterator[str]:
    """What is wrong with a body of an operation."""
    shape = service().operation_model(operation).input_shape
    members = {name: each for name, each in shape.members.items() if not each.serialization.get("location")}
    required = [name for name in shape.required_members if name in members]
    yield from _structure("", members, required, body)


def _structure(path: str, members: dict[str, Any], required: list[str], value: Any) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path}: expected an object"
        return
    for name in value.keys() - members.keys():
        yield f"{path}.{name}: unknown"
    for name in required:
        if name not in value:
            yield f"{path}.{name}: missing"
    for name, each in value.items():
        if name in members:
            yield from _value(f"{path}.{name}", members[name], each)


def _value(path: str, shape: Any, value: Any) -> Iterator[str]:
    if getattr(shape, "is_document_type", False):
        return
    kind = shape.type_name
    if kind == "structure":
        yield from _structure(path, shape.members, shape.required_members, value)
        if shape.is_tagged_union and isinstance(value, dict) and len(value) != 1:
            yield f"{path}: exactly one member is possible"
    elif kind == "list":
        yield from _list(path, shape, value)
    elif kind == "map":
        for key, each in value.items():
            yield from _value(f"{path}.{key}", shape.value, each)
    else:
        yield from _scalar(path, shape, value)


def _list(path: str, shape: Any, value: Any) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{path}: expected a list"
        return
    yield from _bounds(path, shape, len(value))
    for i, each in enumerate(value):
        yield from _value(f"{path}[{i}]", shape.member, each)


_TYPES: dict[str, tuple[Any, ...]] = {
    "string": (str,), "blob": (str,), "integer": (int,), "long": (int,), "float": (int, float),
    "double": (int, float), "boolean": (bool,),
}  # fmt: skip


def _scalar(path: str, shape: Any, value: Any) -> Iterator[str]:
    kind: str = shape.type_name
    if not isinstance(value, _TYPES[kind]) or (kind != "boolean" and isinstance(value, bool)):
        yield f"{path}: expected {kind}"
        return
    metadata = shape.metadata
    if kind == "string":
        yield from _bounds(path, shape, len(value))
        if (pattern := metadata.get("pattern")) and not re.fullmatch(pattern, value):
            yield f"{path}: {value!r} does not have the pattern {pattern}"
        if (words := getattr(shape, "enum", None)) and value not in words:
            yield f"{path}: {value!r} is none of {words}"
    elif kind == "blob":
        if len(value) % 4 or not re.fullmatch(r"[A-Za-z0-9+/]*={0,2}", value):
            yield f"{path}: no base64"
    elif kind != "boolean":
        yield from _bounds(path, shape, value)


def _bounds(path: str, shape: Any, size: float) -> Iterator[str]:
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    if (least is not None and size < least) or (most is not None and size > most):
        yield f"{path}: {size} is not within {least} and {most}"


# ── what the models refuse ────────────────────────────────────────────────────────────────────────────────


def faults(body: Object, model: str) -> Iterator[str]:
    """The faults of a request for Converse that its description does not have."""
    messages = body.get("messages", [])
    if not messages or messages[0]["role"] != "user":
        yield "A conversation must start with a user message."
        return
    roles = [message["role"] for message in messages]
    if any(a == b for a, b in pairwise(roles)):
        yield "roles must alternate"
    if "system" in roles and not is_claude(model):
        yield "this model takes no system message between others"
    due, titles = list[str](), list[str]()
    for message in messages:
        content = message["content"]
        if not content or "cachePoint" in content[0]:
            yield "The content field is empty, or begins with a cachePoint."
        yield from _blocks(content, body, titles)
        results = [block["toolResult"]["toolUseId"] for block in content if "toolResult" in block]
        if sorted(results) != sorted(due):
            yield f"Expected toolResult blocks for {due}, and there are {results}"
        kinds = [next(iter(block)) for block in content if "cachePoint" not in block]
        if kinds[: len(results)] != ["toolResult"] * len(results):
            yield "toolResult blocks come first"
        due = [block["toolUse"]["toolUseId"] for block in content if "toolUse" in block]
    if len(set(titles)) != len(titles):
        yield "The request has two documents with one name"
    if json.dumps(body).count('"cachePoint"') > 4:
        yield "too many cache points"
    last = messages[-1]["content"][-1].get("text", "") if messages[-1]["role"] == "assistant" else ""
    if last != last.rstrip():
        yield "final assistant content cannot end with trailing whitespace"
    yield from _more(body, model)


def _blocks(content: list[Object], body: Object, titles: list[str]) -> Iterator[str]:
    for block in content:
        if "text" in block and not block["text"].strip():
            yield "The text field in the ContentBlock object is blank."
        if ("toolUse" in block or "toolResult" in block) and "toolConfig" not in body:
            yield "The toolConfig field must be defined when using toolUse and toolResult content blocks."
        if "toolUse" in block and not isinstance(block["toolUse"]["input"], dict):
            yield "toolUse.input is no object"
        if "toolResult" in block and not block["toolResult"]["content"]:
            yield "toolResult.content is empty"
        if "document" in block:
            titles.append(block["document"]["name"])
            if not any("text" in each for each in content):
                yield "A text block must be included when using documents."
            if any(not (c.isalnum() or c in " -()[]") for c in titles[-1]) or "  " in titles[-1]:
                yield f"The document name {titles[-1]!r} is not valid"
        reasoning = block.get("reasoningContent", {}).get("reasoningText")
        if reasoning is not None and reasoning.get("signature") != signature(reasoning["text"]):
            yield "Invalid signature in thinking block"


def _more(body: Object, model: str) -> Iterator[str]:
    names = [tool["toolSpec"]["name"] for tool in body.get("toolConfig", {}).get("tools", ()) if "toolSpec" in tool]
    choice = body.get("toolConfig", {}).get("toolChoice", {})
    if "tool" in choice and choice["tool"]["name"] not in names:
        yield "toolChoice names no tool"
    if len(set(names)) != len(names):
        yield "two tools have one name"
    more = body.get("additionalModelRequestFields", {})
    allowed = {"thinking", "top_k", "anthropic_beta", "tool_choice"} if is_claude(model) else {"reasoningConfig"}
    for name in more.keys() - allowed - {"inferenceConfig"}:
        yield f"extraneous key [{name}] is not permitted"
    text = body.get("outputConfig", {}).get("textFormat")
    if text is not None:
        json.loads(text["structure"]["jsonSchema"]["schema"])


def is_claude(model: str) -> bool:
    """The profile of the account is one of Anthropic's models."""
    return "anthropic" in model or model.startswith("arn:")


def signature(thought: str) -> str:
    return hashlib.sha256(thought.encode()).hexdigest()
