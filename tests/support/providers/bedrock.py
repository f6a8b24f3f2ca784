"""Bedrock's runtime as AWS describes it: what the description does not have, or the models do not take, is refused.

The last text decides the answer: `!NAME` raises that exception, `!mid NAME` raises it after the first pieces, `!crc`
breaks a checksum there, `think` and `redact` add reasoning where it is enabled, `call` calls every tool, `blocked`
meets the guardrail, `slow` waits between pieces. Every other text is repeated. `cut` ends streams at that byte.
"""

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import unquote

from aiohttp import web
from botocore.eventstream import EventStreamBuffer

from adapters.wire.bedrock import event_stream
from tests.servers.stand_ins.serving import serving
from tests.support.providers.bedrock_shapes import faults, mistakes, signature

KEY = "bedrock-api-key-stand-in"
CLAUDE = "eu.anthropic.claude-stand-in-v1:0"
NOVA = "amazon.nova-stand-in-v1:0"
PROFILE = "arn:aws:bedrock:eu-central-1:123456789012:application-inference-profile/abc123"
TITAN_V1, TITAN_V2 = "amazon.titan-embed-text-v1", "amazon.titan-embed-text-v2:0"
COHERE_V3, COHERE_V4 = "cohere.embed-english-v3", "cohere.embed-v4:0"
MODELS = frozenset({CLAUDE, NOVA, PROFILE, TITAN_V1, TITAN_V2, COHERE_V3, COHERE_V4})
REQUEST = "11111111-2222-3333-4444-555555555555"
Object = dict[str, Any]

EXCEPTIONS: dict[str, tuple[int, str]] = {
    "ThrottlingException": (429, "Too many requests, please wait before trying again."),
    "ServiceQuotaExceededException": (400, "Your request exceeds the service quota for your account."),
    "ValidationException": (400, "The provided request is not valid"),
    "AccessDeniedException": (403, "User: arn:aws:sts::1:x is not authorized to perform: bedrock:InvokeModel"),
    "UnrecognizedClientException": (403, "The security token included in the request is invalid."),
    "ExpiredTokenException": (403, "The security token included in the request is expired"),
    "ResourceNotFoundException": (404, "Could not find the model."),
    "ModelNotReadyException": (429, "The model is not ready for inference."),
    "ModelTimeoutException": (408, "Processing time exceeded."),
    "ModelErrorException": (424, "The model failed."),
    "ModelStreamErrorException": (424, "The model failed in its stream."),
    "InternalServerException": (500, "The system encountered an unexpected error."),
    "ServiceUnavailableException": (503, "Bedrock is unable to process your request."),
}
OTHERS: dict[str, tuple[int, str, str]] = {
    "long": (400, "ValidationException", "Input is too long for requested model."),
    "tokens": (400, "ValidationException", "The maximum tokens you requested exceeds the model limit of the prompt"),
    "identifier": (400, "ValidationException", "The provided model identifier is invalid."),
    "access": (403, "AccessDeniedException", "You don't have access to the model with the specified model ID."),
    "content": (400, "ValidationException", "Output blocked by content filtering policy"),
}


class Refused(Exception):
    """An exception of Bedrock."""

    def __init__(self, status: int, type_: str, message: str) -> None:
        super().__init__(message)
        self.status, self.type = status, type_

    @classmethod
    def named(cls, name: str) -> "Refused":
        return cls(*OTHERS[name]) if name in OTHERS else cls(EXCEPTIONS[name][0], name, EXCEPTIONS[name][1])


def invalid(message: str) -> Refused:
    return Refused(400, "ValidationException", message)


@dataclass
class Bedrock:
    """A running one. `bodies` are the accepted requests with their operation, `headers` those of the last request."""

    url: str = ""
    bodies: list[tuple[str, Object]] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    paths: list[str] = field(default_factory=list)
    running: int = 0
    cut: int | None = None
    piece: int = 0
    """Bytes of each write; 0 for one write a frame."""
    authorized: Callable[[web.Request, bytes], bool] = lambda request, body: (
        request.headers.get("authorization") == f"Bearer {KEY}"
    )


@asynccontextmanager
async def bedrock(**fields: Any) -> AsyncIterator[Bedrock]:
    """The stand-in on a free port."""
    state = Bedrock(**fields)
    app = web.Application(client_max_size=32 * 1024**2)
    app.router.add_route("*", "/{path:.*}", partial(_handle, state))
    async with serving(app) as state.url:
        yield state


async def _handle(state: Bedrock, request: web.Request) -> web.StreamResponse:
    raw_path = request.raw_path.partition("?")[0]
    state.paths.append(raw_path)
    state.headers = {name.lower(): value for name, value in request.headers.items()}
    headers = {"x-amzn-RequestId": REQUEST}
    state.running += 1
    try:
        return await _dispatch(state, request, raw_path)
    except Refused as error:
        if error.type == "ThrottlingException":
            headers["x-amz-retry-after"] = "1500"
        headers["x-amzn-errortype"] = f"{error.type}:http://internal.amazon.com/coral/com.amazon.bedrock/"
        return web.json_response({"message": str(error)}, status=error.status, headers=headers)
    finally:
        state.running -= 1


async def _dispatch(state: Bedrock, request: web.Request, raw_path: str) -> web.StreamResponse:
    parts = raw_path.split("/")
    if request.method != "POST" or len(parts) != 4 or parts[1] != "model" or parts[3] not in _OPERATIONS:
        raise Refused(404, "UnknownOperationException", "")
    raw = await request.read()
    if not state.authorized(request, raw):
        raise Refused(403, "UnrecognizedClientException", "The security token included in the request is invalid.")
    model = unquote(parts[2])
    try:
        body = json.loads(raw)
    except ValueError:
        raise Refused(400, "SerializationException", "not JSON") from None
    if model not in MODELS:
        raise Refused.named("identifier")
    if parts[3] == "invoke":
        return _invoked(state, model, body)
    for wrong in mistakes(_OPERATIONS[parts[3]], body):
        raise invalid(wrong)
    converse = body["input"]["converse"] if parts[3] == "count-tokens" else body
    for wrong in faults(converse, model):
        raise invalid(wrong)
    state.bodies.append((parts[3], body))
    if parts[3] == "count-tokens":
        return _json({"inputTokens": words(converse)})
    answer = answer_of(converse, model)
    if parts[3] == "converse":
        if _prompt(converse).startswith("!mid"):
            raise Refused.named(_prompt(converse).split()[1])
        return _json(answer)
    return await _streamed(state, request, answer, _prompt(converse))


_OPERATIONS = {
    "converse": "Converse", "converse-stream": "ConverseStream", "count-tokens": "CountTokens", "invoke": "InvokeModel",
}  # fmt: skip


def _json(body: Object, **headers: str) -> web.Response:
    return web.json_response(body, headers={"x-amzn-RequestId": REQUEST, **headers})


def words(body: Object) -> int:
    return len(json.dumps([body.get("system"), body["messages"], body.get("toolConfig")]).split())


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────


def _prompt(body: Object) -> str:
    texts = [block["text"] for block in body["messages"][-1]["content"] if "text" in block]
    return str(texts[-1]) if texts else "what the tool found"


def answer_of(body: Object, model: str) -> Object:
    """The whole answer."""
    prompt = _prompt(body)
    if prompt.startswith("!") and (name := prompt[1:]) in {**EXCEPTIONS, **OTHERS}:
        raise Refused.named(name)
    content = list[Object]()
    thinks = body.get("additionalModelRequestFields", {}).keys() & {"thinking", "reasoningConfig"}
    if thinks and "think" in prompt:
        thought = "Let me see."
        content.append({"reasoningContent": {"reasoningText": {"text": thought, "signature": signature(thought)}}})
    if thinks and "redact" in prompt:
        content.append({"reasoningContent": {"redactedContent": base64.b64encode(b"hidden thoughts").decode()}})
    if "guardrailConfig" in body and "blocked" in prompt:
        return _answer(body, [{"text": "I cannot answer."}], "guardrail_intervened")
    if "malformed" in prompt:
        return _answer(body, [{"text": "{"}], "malformed_model_output")
    for stop in body.get("inferenceConfig", {}).get("stopSequences", ()):
        if stop in prompt:
            content.append({"text": prompt.partition(stop)[0] or "."})
            answer = _answer(body, content, "stop_sequence")
            if "/stop_sequence" in body.get("additionalModelResponseFieldPaths", ()):
                answer["additionalModelResponseFields"] = {"stop_sequence": stop}
            return answer
    tools = [tool["toolSpec"] for tool in body.get("toolConfig", {}).get("tools", ()) if "toolSpec" in tool]
    if tools and "call" in prompt:
        calls = [
            {"toolUse": {"toolUseId": f"tooluse_{i}", "name": tool["name"], "input": {"n": i, "x": 1.0} if i else {}}}
            for i, tool in enumerate(tools)
        ]
        return _answer(body, [*content, {"text": "One moment."}, *calls], "tool_use")
    parts = prompt.split(" ")
    most = body.get("inferenceConfig", {}).get("maxTokens", len(parts))
    reason = "max_tokens" if len(parts) > most else "end_turn"
    return _answer(body, [*content, {"text": " ".join(parts[:most])}], reason)


def _answer(body: Object, content: list[Object], reason: str) -> Object:
    points = json.dumps(body).count('"cachePoint"')
    usage: Object = {"inputTokens": words(body), "outputTokens": sum(len(json.dumps(each).split()) for each in content)}
    if points:
        usage |= {"cacheReadInputTokens": 5, "cacheWriteInputTokens": 7 * points}
        usage["cacheDetails"] = [{"ttl": "1h" if '"1h"' in json.dumps(body) else "5m", "inputTokens": 7 * points}]
    usage["totalTokens"] = sum(value for value in usage.values() if isinstance(value, int))
    message = {"role": "assistant", "content": content}
    return {"output": {"message": message}, "stopReason": reason, "usage": usage, "metrics": {"latencyMs": 12}}


# ── streams ───────────────────────────────────────────────────────────────────────────────────────────────


def events(answer: Object) -> Iterator[tuple[str, Object]]:
    """The events of a streamed answer."""
    yield "messageStart", {"role": "assistant"}
    for i, block in enumerate(answer["output"]["message"]["content"]):
        if (call := block.get("toolUse")) is not None:
            start = {"toolUse": {"toolUseId": call["toolUseId"], "name": call["name"]}}
            yield "contentBlockStart", {"start": start, "contentBlockIndex": i}
        for delta in _deltas(block):
            yield "contentBlockDelta", {"delta": delta, "contentBlockIndex": i}
        yield "contentBlockStop", {"contentBlockIndex": i}
    stop = {"stopReason": answer["stopReason"]}
    if "additionalModelResponseFields" in answer:
        stop["additionalModelResponseFields"] = {"delta": answer["additionalModelResponseFields"]}
    yield "messageStop", stop
    yield "metadata", {"usage": answer["usage"], "metrics": answer["metrics"]}


def _deltas(block: Object) -> Iterator[Object]:
    if "text" in block:
        for i, word in enumerate(block["text"].split(" ")):
            yield {"text": f" {word}" if i else word}
    elif (reasoning := block.get("reasoningContent")) is not None:
        if "redactedContent" in reasoning:
            yield {"reasoningContent": {"redactedContent": reasoning["redactedContent"]}}
            return
        yield {"reasoningContent": {"text": reasoning["reasoningText"]["text"]}}
        yield {"reasoningContent": {"signature": reasoning["reasoningText"]["signature"]}}
    elif block["toolUse"]["input"]:
        written = json.dumps(block["toolUse"]["input"])
        yield {"toolUse": {"input": written[:3]}}
        yield {"toolUse": {"input": written[3:]}}


def frame(event: str, fields: Object) -> bytes:
    """One event, with padding of an arbitrary length."""
    padding = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"[: len(json.dumps(fields)) % 50 + 1]
    return event_stream.encode_event(event, json.dumps({**fields, "p": padding}).encode())


def frames(answer: Object, prompt: str) -> Iterator[bytes]:
    """The frames of a streamed answer, with the failure that the prompt demands."""
    fails = prompt.split()[0] if prompt.startswith(("!mid", "!crc")) else ""
    for i, (event, fields) in enumerate(events(answer)):
        encoded = frame(event, fields)
        if fails and i == 3:
            if fails == "!crc":
                yield encoded[:-1] + bytes((encoded[-1] ^ 1,))
                return
            name = prompt.split()[1]
            message = {"message": EXCEPTIONS[name][1]}
            yield event_stream.encode_exception(name[0].lower() + name[1:], json.dumps(message).encode())
            return
        yield encoded


async def _streamed(state: Bedrock, request: web.Request, answer: Object, prompt: str) -> web.StreamResponse:
    headers = {"content-type": event_stream.CONTENT_TYPE, "x-amzn-RequestId": REQUEST}
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    stream = list(frames(answer, prompt))
    buffer = EventStreamBuffer()
    if "!crc" not in prompt:
        buffer.add_data(b"".join(stream))
        assert len(list(buffer)) == len(stream), "botocore reads every frame"
    whole = b"".join(stream)[: state.cut]
    pieces = [whole[at : at + state.piece] for at in range(0, len(whole), state.piece)] if state.piece else stream
    for piece in [whole] if state.cut is not None and not state.piece else pieces:
        await response.write(piece)
        await asyncio.sleep(0.05 if "slow" in prompt else 0)
    return response


# ── embeddings ────────────────────────────────────────────────────────────────────────────────────────────


def _vector(text: str, size: int) -> list[float]:
    digest = hashlib.sha256(text.encode()).digest()
    return [digest[i % 32] / 256 for i in range(size)]


def _invoked(state: Bedrock, model: str, body: Object) -> web.Response:
    allowed = {
        TITAN_V1: {"inputText"},
        TITAN_V2: {"inputText", "dimensions", "normalize", "embeddingTypes"},
        COHERE_V3: {"texts", "input_type", "truncate", "embedding_types"},
        COHERE_V4: {"texts", "input_type", "truncate", "embedding_types", "output_dimension"},
    }[model]
    for name in body.keys() - allowed:
        raise invalid(f"extraneous key [{name}] is not permitted")
    state.bodies.append(("invoke", body))
    if "inputText" in allowed:
        if body["inputText"].startswith("!"):
            raise Refused.named(body["inputText"][1:])
        count = len(body["inputText"].split())
        vector = _vector(body["inputText"], body.get("dimensions", 4))
        return _json({"embedding": vector, "inputTextTokenCount": count})
    if body["input_type"] not in ("search_document", "search_query", "classification", "clustering"):
        raise invalid("input_type")
    if not 0 < len(body["texts"]) <= 96:
        raise invalid("texts")
    vectors = [_vector(text, body.get("output_dimension", 4)) for text in body["texts"]]
    tokens = str(sum(len(text.split()) for text in body["texts"]))
    answer = {"id": "x", "response_type": "embeddings_by_type", "embeddings": {"float": vectors}}
    return _json(answer, **{"X-Amzn-Bedrock-Input-Token-Count": tokens})
