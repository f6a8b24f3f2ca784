"""What Google's API refuses in a request of `generateContent`: pure functions over bodies.

Sources: the messages of `google.ai.generativelanguage.v1beta`, and the refusals that Google's documentation names.
"""

import base64
import hashlib
from collections.abc import Iterator
from typing import Any

Object = dict[str, Any]

SKIPPED = "skip_thought_signature_validator"
_SIGNED = base64.b64encode(b"gemini")[:8].decode()
_FIELDS = {
    "": "model contents systemInstruction tools toolConfig safetySettings generationConfig cachedContent serviceTier "
    "store",
    "vertex": "model contents systemInstruction tools toolConfig safetySettings generationConfig cachedContent labels",
    "content": "role parts",
    "part": "text inlineData fileData functionCall functionResponse thought thoughtSignature mediaResolution",
    "call": "id name args",
    "response": "id name response parts willContinue scheduling",
    "blob": "mimeType data",
    "file": "mimeType fileUri",
    "function": "name description parameters parametersJsonSchema response responseJsonSchema behavior",
    "config": "temperature topP topK candidateCount maxOutputTokens stopSequences seed presencePenalty "
    "frequencyPenalty responseLogprobs logprobs responseMimeType responseSchema responseJsonSchema thinkingConfig "
    "responseModalities mediaResolution",
    "thinking": "includeThoughts thinkingBudget thinkingLevel",
    "schema": "type format title description nullable default items minItems maxItems enum properties minProperties "
    "maxProperties required minimum maximum minLength maxLength pattern example anyOf propertyOrdering",
}
_DATA = ("text", "inlineData", "fileData", "functionCall", "functionResponse")


def signature(text: str) -> str:
    """The signature of a call's name or of a text."""
    return base64.b64encode(b"gemini:" + hashlib.sha256(text.encode()).digest()).decode()


def is_new(model: str) -> bool:
    """Whether a model is of the generation that refuses calls without signatures."""
    return model.startswith("gemini-3")


def is_old(model: str) -> bool:
    """Whether a model takes the subset of schemas only."""
    return model.startswith(("gemini-1", "gemini-2.0", "gemma"))


def _unknown(kind: str, given: Any) -> Iterator[str]:
    if not isinstance(given, dict):
        yield f"Invalid JSON payload received. {kind} is not an object"
        return
    for name in given.keys() - set(_FIELDS[kind].split()):
        yield f"Invalid JSON payload received. Unknown name \"{name}\" at '{kind}': Cannot find field."


def faults(body: Object, model: str, *, of_vertex: bool = False, counts: bool = False) -> Iterator[str]:
    """The faults of a request, the first one first. A count takes any turns: Gemini CLI counts a result alone."""
    yield from _unknown("vertex" if of_vertex else "", body)
    if not body.get("contents"):
        yield "* GenerateContentRequest.contents: contents is not specified"
        return
    if "systemInstruction" in body:
        if model.startswith("gemma"):
            yield "Developer instruction is not enabled for this model"
        if any(set(part) != {"text"} for part in body["systemInstruction"]["parts"]):
            yield "systemInstruction: text only"
    if not counts:
        yield from _turns(body["contents"], model, of_vertex)
    yield from _tools(body, model)
    yield from _config(body.get("generationConfig", {}), model)


def _turns(contents: list[Object], model: str, of_vertex: bool) -> Iterator[str]:
    if contents[0].get("role", "user") != "user":
        yield "Please ensure that single turn requests end with a user role or the role field is empty."
    due, before = list[Object](), ""
    for content in contents:
        yield from _unknown("content", content)
        parts, role = content.get("parts") or [], content.get("role", "user")
        if role not in ("user", "model"):
            yield "Please use a valid role: user, model."
        if not parts:
            yield "* GenerateContentRequest.contents[0].parts: must not be empty"
        for part in parts:
            yield from _part(part, of_vertex)
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        results = [part["functionResponse"] for part in parts if "functionResponse" in part]
        if results and role != "user":
            yield "Please ensure that function responses are in a turn of the user."
        if len(results) != len(due) or [result["name"] for result in results] != [call["name"] for call in due]:
            yield "Please ensure that the number of function response parts is equal to the function call parts"
        if calls and (role != "model" or before not in ("user",)):
            yield "Please ensure that function call turn comes immediately after a user turn."
        if calls and is_new(model):
            yield from _signatures(parts)
        due, before = calls, role
    if due:
        yield "Please ensure that function response turn comes immediately after a function call turn."


def _signatures(parts: list[Object]) -> Iterator[str]:
    for place, part in enumerate(part for part in parts if "functionCall" in part):
        given, right = _standard(part.get("thoughtSignature")), signature(part["functionCall"]["name"])
        if place == 0 and given is None:
            yield "Function call is missing a thought_signature in functionCall parts."
        elif place == 0 and given not in (right, _standard(SKIPPED), base64.b64encode(SKIPPED.encode()).decode()):
            yield "Thought signature is not valid."
        elif place and given is not None:
            yield "Corrupted thought signature."


def _standard(text: str | None) -> str | None:
    """Base64 in the standard alphabet: Google's parser takes both."""
    return None if text is None else text.replace("-", "+").replace("_", "/")


def _part(part: Object, of_vertex: bool) -> Iterator[str]:
    yield from _unknown("part", part)
    if sum(name in part for name in _DATA) != 1:
        yield "required oneof field 'data' must have one initialized field"
    if part.get("text") == "" and "thoughtSignature" not in part:
        yield "Unable to submit request because it must have a text parameter"
    if "text" in part and not part.get("thoughtSignature", _SIGNED).startswith(_SIGNED):
        yield "Thought signature is not valid."
    if "inlineData" in part:
        yield from _unknown("blob", part["inlineData"])
        try:
            base64.b64decode(part["inlineData"]["data"], validate=True)
        except ValueError:
            yield "Base64 decoding failed"
    if "fileData" in part:
        yield from _unknown("file", part["fileData"])
        if of_vertex and not part["fileData"].get("mimeType"):
            yield "mimeType is required"
    for name, kind in (("functionCall", "call"), ("functionResponse", "response")):
        if name in part:
            yield from _unknown(kind, part[name])
            if not part[name].get("name"):
                yield f"{name}.name: Name cannot be empty."
            if of_vertex and "id" in part[name]:
                yield f"Invalid JSON payload received. Unknown name \"id\" at '{name}': Cannot find field."
            if not isinstance(part[name].get("args", part[name].get("response", {})), dict):
                yield f"{name}: Proto field is not repeating, cannot start list."


def _tools(body: Object, model: str) -> Iterator[str]:
    declared = [one for tool in body.get("tools", ()) for one in tool.get("functionDeclarations", ())]
    for function in declared:
        yield from _unknown("function", function)
        name = function.get("name", "")
        if not name or len(name) > 128 or not (name[0].isalpha() or name[0] == "_"):
            yield "Invalid function name. Must start with a letter or an underscore."
        if "parametersJsonSchema" in function and is_old(model):
            yield "parameters_json_schema is not supported by this model"
        if "parametersJsonSchema" in function and "parameters" in function:
            yield "only one of parameters and parameters_json_schema"
        if "parameters" in function:
            yield from _schema(function["parameters"], 0)
            if function["parameters"].get("type") == "object" and not function["parameters"].get("properties"):
                yield "parameters.properties: should be non-empty for OBJECT type"
    config = body.get("toolConfig", {}).get("functionCallingConfig", {})
    if config and not declared:
        yield "Function calling config is set without function_declarations."
    if config.get("allowedFunctionNames") and config.get("mode") not in ("ANY", "VALIDATED"):
        yield "allowed_function_names should only be set when the mode is ANY or VALIDATED."
    if set(config.get("allowedFunctionNames", ())) - {one["name"] for one in declared}:
        yield "allowed_function_names is not a subset of the declared functions"


def _schema(schema: Any, depth: int) -> Iterator[str]:
    yield from _unknown("schema", schema)
    if depth > 32:
        yield "Schema is nested too deeply."
    if schema.get("type") == "array" and "items" not in schema:
        yield "items: missing field."
    if isinstance(schema.get("type"), list):
        yield "Proto field is not repeating, cannot start list."
    if "enum" in schema and not (schema["enum"] and all(isinstance(one, str) and one for one in schema["enum"])):
        yield "enum[0]: cannot be empty"
    for name in schema.get("required", ()):
        if name not in schema.get("properties", {}):
            yield f"required[0]: property is not defined: {name}"
    inner = [*schema.get("properties", {}).values(), *schema.get("anyOf", ())]
    for each in [*inner, *([schema["items"]] if "items" in schema else ())]:
        yield from _schema(each, depth + 1)


def _config(config: Object, model: str) -> Iterator[str]:
    yield from _unknown("config", config)
    if len(config.get("stopSequences", ())) > 5:
        yield "The stop_sequences must be at most 5"
    if not 0 <= config.get("temperature", 1) <= 2:
        yield "* GenerateContentRequest.generation_config.temperature: temperature must be in the range [0.0, 2.0]."
    if abs(config.get("seed", 0)) > 2**31 - 1:
        yield "Invalid value at 'generation_config.seed' (TYPE_INT32)"
    if "responseSchema" in config:
        yield from _schema(config["responseSchema"], 0)
    if "responseJsonSchema" in config and is_old(model):
        yield "response_json_schema is not supported by this model"
    if {"responseSchema", "responseJsonSchema"} & config.keys() and "responseMimeType" not in config:
        yield "response_mime_type must be application/json"
    thinking = config.get("thinkingConfig")
    if thinking is None:
        return
    yield from _unknown("thinking", thinking)
    if is_old(model):
        yield "Thinking is not enabled for this model"
    if "thinkingLevel" in thinking and not is_new(model):
        yield "Thinking level is not supported for this model."
    if {"thinkingLevel", "thinkingBudget"} <= thinking.keys():
        yield "You can only set only one of thinking budget and thinking level."
    least = 128 if "pro" in model else 0
    if not is_new(model) and not (
        thinking.get("thinkingBudget", least) in (-1,) or least <= thinking.get("thinkingBudget", least) <= 32_768
    ):
        yield "The thinking budget is invalid."
