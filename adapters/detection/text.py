"""Detects servers of text models. Most list models in OpenAI's form; other responses distinguish the systems."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from adapters.detection.look import DetectedModel, Detection, Look, Seen, pool, text
from adapters.http1.message import encode_fields
from adapters.upstreams.openai.paths import names_root
from adapters.wire.openai.dialects import OpenAIDialect, of_host
from adapters.wire.openai.providers import HOSTED

MOST_MODELS = 256
ROOTS = ("/v1", "/openai/v1", "/v3")
"""Paths of the API below an address without a version: most systems; Azure, KServe and Groq; OpenVINO."""
OF_ANTHROPIC = encode_fields((("anthropic-version", "2023-06-01"),))


class _Kind(NamedTuple):
    """A system. `version` extracts its version from the response of `version_path`."""

    system: str
    name: str
    dialect: str = ""
    version_path: str = ""
    version: Callable[[dict[str, Any]], object] = lambda body: body.get("version")


OWNERS = {
    "vllm": _Kind("vLLM", "vllm", "vllm", "/version"),
    "sglang": _Kind("SGLang", "sglang", "sglang", "/server_info"),
    "llamacpp": _Kind("llama.cpp", "llama-cpp", "llama.cpp", "/props", lambda body: body.get("build_info")),
    "tensorrt_llm": _Kind("TensorRT-LLM", "trtllm", "tensorrt-llm", "/version"),
    "library": _Kind("Ollama", "ollama", "ollama", "/api/version"),
    "organization_owner": _Kind("LM Studio", "lm-studio", "lm-studio"),
    "headrace": _Kind("Headrace LLM engine", "headrace"),
    "mistralai": _Kind("Mistral", "mistral", "mistral"),
    "openai": _Kind("OpenAI", "openai", "openai"),
    "system": _Kind("OpenAI", "openai", "openai"),
}
"""Systems by the owner of a model that `/v1/models` reports."""
SIGNS = {
    "/api/version": ("version", OWNERS["library"]),
    "/get_model_info": ("model_path", OWNERS["sglang"]),
    "/props": ("total_slots", OWNERS["llamacpp"]),
}
"""A path that only one system has, a field of its response, and the system: the owner of a model may be its author."""
_OF_BEDROCK = re.compile(r"(^|\.)bedrock-runtime(-fips)?\.")
KEY_REQUIRED = "It lists its models only with a key: give --key."
_OTHER = _Kind("a server that speaks OpenAI", "openai")


async def tgi(look: Look) -> Detection | None:
    """Detect Text Generation Inference. Its sibling for embeddings has a `model_type` instead."""
    info = (await look.at("/info")).object()
    name = text(info.get("model_id"))
    if not name or "max_total_tokens" not in info:
        return None
    context = f"context {info['max_total_tokens']} tokens" if isinstance(info["max_total_tokens"], int) else ""
    detected = pool("tgi", speaking("tgi"), DetectedModel(name, "text", context))
    return Detection("Text Generation Inference", text(info.get("version")), (detected,))


async def bedrock(look: Look) -> Detection | None:
    """Detect Bedrock by its host: below a path of another API the address is that API."""
    return None if names_root(look.base_path) or not _OF_BEDROCK.search(look.host) else _bedrock(look)


async def bedrock_elsewhere(look: Look) -> Detection | None:
    """Detect Bedrock behind another host by its refusal of an empty conversation."""
    seen = await look.at("/model/headrace.probe/converse", b'{"messages":[]}')
    return _bedrock(look) if seen.exception else None


def _bedrock(look: Look) -> Detection:
    models = [DetectedModel(name, "text") for name in look.names]
    notes = () if models else ("Its models are not listed here: name those of the account with --model.",)
    return Detection("Amazon Bedrock", "", (pool("bedrock", "bedrock", *models),), notes)


async def openai(look: Look) -> Detection | None:
    """Detect a server that lists models or rejects a missing key in OpenAI's form, at any of its usual paths."""
    if (name := of_host(look.host, HOSTED)) is not None:
        return await _hosted(look, name, HOSTED[name])
    roots = ("",) if names_root(look.base_path) else ROOTS
    for root in roots:
        if (detection := await _at(look, root)) is not None:
            return detection
    return None


async def _hosted(look: Look, name: str, dialect: OpenAIDialect) -> Detection:
    """A hosted API, which its host identifies; some have no list of models, or one without the usual object."""
    is_root = names_root(look.base_path) or (dialect.root != "" and look.base_path.endswith(dialect.root))
    seen = await look.at("/models" if is_root else f"{dialect.root}/models")
    models = listed(seen.object() or {"data": seen.json}) or []
    notes = () if models else (KEY_REQUIRED if seen.status in (401, 403) else "It lists no models.",)
    return Detection(dialect.system, "", (pool(name, speaking(name), *models),), notes)


async def _at(look: Look, root: str) -> Detection | None:
    seen = await look.at(f"{root}/models")
    path = "" if root == ROOTS[0] else root
    if seen.status in (401, 403):
        return _keyed(seen, path, await look.at(f"{root}/models", fields=OF_ANTHROPIC))
    models = listed(seen.object())
    if models is None:
        return None
    kind = await _kind(look, seen.object())
    version = kind.version((await look.at(kind.version_path)).object()) if kind.version_path else ""
    notes = () if models else ("It lists no models.",)
    return Detection(kind.system, text(version), (pool(kind.name, speaking(kind.dialect), *models, path=path),), notes)


async def _kind(look: Look, body: dict[str, Any]) -> _Kind:
    owners = [text(one.get("owned_by")) for one in body["data"] if isinstance(one, dict)]
    for owner in owners:
        if owner in OWNERS:
            return OWNERS[owner]
    for path, (field, kind) in SIGNS.items():
        if field in (await look.at(path)).object():
            return kind
    return _OTHER


def speaking(dialect: str) -> dict[str, str]:
    """The `protocol` section of a pool."""
    return {"name": "openai", "dialect": dialect} if dialect else {"name": "openai"}


def listed(body: dict[str, Any]) -> list[DetectedModel] | None:
    """The models of a response in OpenAI's form; None for another form."""
    data = body.get("data")
    if not isinstance(data, list):
        return None
    named = [(text(one.get("id")), one) for one in data[:MOST_MODELS] if isinstance(one, dict)]
    return [DetectedModel(name, "text", _context(one)) for name, one in named if name]


def _context(model: dict[str, Any]) -> str:
    length = model.get("max_model_len") or model.get("context_window")
    return f"context {length} tokens" if isinstance(length, int) else ""


def _keyed(seen: Seen, path: str, again: Seen) -> Detection | None:
    """Identify a server that requires a key by the form of its rejection."""
    body = seen.decoded
    if isinstance(body, dict) and body.get("type") == "error":
        models = listed(again.object()) or []
        notes = () if models else ("It lists its models only with --key and --key-header x-api-key.",)
        return Detection("Anthropic", "", (pool("anthropic", "anthropic", *models),), notes)
    if isinstance(body, dict) and ("error" in body or "detail" in body or body.get("object") == "error"):
        return Detection(_OTHER.system, "", (pool(_OTHER.name, "openai", path=path),), (KEY_REQUIRED,))
    return None
