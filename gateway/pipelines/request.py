"""The request of a pipeline: its values, and the requests of steps that are made from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from adapters import offload
from adapters.base import Answer
from adapters.call import Call
from adapters.errors import CallerError, Unsupported
from adapters.offload import codecs
from adapters.requests import (
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    GenerateRequest,
    InferRequest,
    ModelRequest,
)
from adapters.tensors import FRAMING, Inference, RequestedOutput, Tensor
from adapters.upstreams.oip.inference import Reader
from adapters.wire import decoding
from adapters.wire.oip.bodies import ModelMetadata
from adapters.wire.oip.request_view import SEQUENCE
from adapters.wire.openai import chat as openai
from adapters.wire.tfserving.payloads import PredictV1Payload
from gateway.pipelines.bodies import json_values
from gateway.pipelines.bodies.large_bodies import check_values
from gateway.pipelines.generated import content_text
from gateway.pipelines.values import UnusableValueError, Value, Values, elements_of, plain, text_of

Describe = Callable[[Call], Awaitable[ModelMetadata]]
"""Returns the metadata of the pipeline."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_STREAM = ("stream", "stream_options")
_TEXTS = ("messages", "prompt", "input")
"""The fields with the texts of a request."""
_SOURCES = {"images": "messages"}
"""The field of each value that is not a field."""


class PipelineRequest:
    """The client's request. Its values are decoded once, on the first reference."""

    __slots__ = ("_call", "_describe", "_fields", "_inference", "request")

    def __init__(self, request: ModelRequest, call: Call, describe: Describe) -> None:
        if not isinstance(request, InferRequest | ChatRequest | CompletionRequest | EmbeddingRequest):
            raise Unsupported("The model is a pipeline, which does not support this operation.")
        self.request = request
        self._call = call
        self._describe = describe
        self._inference: Inference | None = None
        self._fields: dict[str, Value] = {}

    def takes(self, answer: Answer, *, is_forwarded: bool) -> bool:
        """Whether an answer is of the request's own operation, so that it can be forwarded unchanged.

        A whole answer to another request than the client's may have other outputs, or another form.
        """
        if isinstance(self.request, InferRequest):
            if answer.form.wire == "predict-v1":
                return self.is_json
            is_expected = answer.body is None or (is_forwarded and not self.request.stream)
            return is_expected and answer.form.wire in ("oip-http", "oip-grpc")
        return answer.form.wire == "openai"

    @property
    def is_json(self) -> bool:
        """Whether the client's request is one of KServe's v1."""
        return isinstance(self.request, InferRequest) and isinstance(self.request.payload, PredictV1Payload)

    async def as_json(self, model: str, inputs: Values | None) -> InferRequest:
        """A request of KServe's v1 with a step's inputs as its fields, or the client's own for None."""
        request = self.request
        if inputs is None:
            assert isinstance(request, InferRequest)
            return request.codec.rename(request, model)
        size = sum(len(each.data) for each in inputs.values() if isinstance(each, Tensor))
        body = await offload.run(size, json_values.encode_fields, dict(inputs))
        return await offload.run(len(body), json_values.request_of, body, model)

    async def inference(self) -> Inference:
        """The tensors of the request, decoded. Raises `CallerError`."""
        request = self.request
        assert isinstance(request, InferRequest)
        if self._inference is None:
            reader = Reader(lambda _model, _version, call: self._describe(call), lambda: 0.0)
            self._inference = await reader.inference(request, request.model, self._call)
        return self._inference

    async def value(self, name: str) -> Value:
        """One value of the request. Raises `CallerError` if the request has none of this name."""
        request = self.request
        if isinstance(request, InferRequest):
            if self.is_json and name not in {each.name for each in (await self._describe(self._call)).inputs}:
                return await self._json_value(name)
            inference = await self.inference()
            tensor = next((tensor for tensor in inference.inputs if tensor.name == name), None)
            if tensor is None:
                if name in inference.parameters:
                    return inference.parameters[name]
                raise CallerError(f"The request has no input `{name}`, which the model needs.", param=name)
            return tensor
        assert isinstance(request, GenerateRequest)
        if name not in self._fields:
            await self._check(_SOURCES.get(name, name))
            self._fields[name] = _field(request, name)
        return self._fields[name]

    async def _json_value(self, name: str) -> Value:
        """One field of a request of KServe's v1, or one of its parameters. Raises `CallerError`."""
        if not self._fields:
            body = self.request.payload.body if isinstance(self.request, InferRequest) else b""
            self._fields = dict(await offload.parse(body, json_values.decode_request, body))
        if name not in self._fields:
            raise CallerError(f"The request has no `{name}`, which the model needs.", param=name)
        return self._fields[name]

    async def texts(self) -> list[str]:
        """Every text of the request, for a guard: of all messages, prompts and tensors. Raises `CallerError`."""
        request = self.request
        if isinstance(request, InferRequest):
            inputs = [tensor for tensor in (await self.inference()).inputs if tensor.datatype == "BYTES"]
            try:
                return ["\n".join(elements_of(tensor)) for tensor in inputs]
            except UnusableValueError as error:
                raise CallerError(f"A guard of the model cannot read the request: {error}.") from None
        assert isinstance(request, GenerateRequest)
        await self._check("text")
        if isinstance(request, ChatRequest):
            return ["\n".join(_strings(_messages(request)))]
        return list(_strings(_field(request, "prompt" if isinstance(request, CompletionRequest) else "input")))

    async def _check(self, name: str) -> None:
        """Raise `CallerError` for a field with too many values to decode them on the event loop."""
        assert isinstance(self.request, GenerateRequest)
        fields = _TEXTS if name == "text" else (name,)
        for field in fields:
            raw = self.request.fields.get(field)
            if raw is not None and len(view := memoryview(raw)) >= offload.LARGE:
                await offload.parse(view, check_values, view, field)

    async def for_model(self, model: str, *, live: bool) -> ModelRequest:
        """The same request for another model, without a stream unless it is `live`."""
        request = self.request
        if isinstance(request, GenerateRequest):
            request.payload.report(self._call.ignored)
            return generate(request, {"model": model}, live=live)
        assert isinstance(request, InferRequest)
        forwarded = ("infer", "infer_stream", "generate_stream") if live else ("infer", "infer_stream")
        if request.wire not in ("oip-http", "oip-grpc") or request.kind not in forwarded:
            return await self.infer(model, await self.inference(), live=live)
        request = request.codec.rename(request, model)
        return request if live else replace(request, kind="infer", stream=False)

    async def infer(
        self, model: str, inference: Inference, outputs: tuple[str, ...] = (), *, live: bool = False
    ) -> InferRequest:
        """A request with tensors for a model. It demands a stream if it is `live` and the client demands a stream."""
        names = [RequestedOutput(name) for name in outputs]
        whole = Inference(model, "", inference.id, inference.parameters, inference.inputs, names)
        request = await codecs.request_from(whole, sum(len(tensor.data) for tensor in inference.inputs))
        client = self.request
        if not isinstance(client, InferRequest):
            return request
        if client.sequence and SEQUENCE in inference.parameters:
            request = replace(request, sequence=client.sequence, starts=client.starts, ends=client.ends)
        return replace(request, kind="infer_stream", stream=True) if live and client.stream else request

    async def inferring(self, model: str, tensors: list[Tensor], *, live: bool) -> InferRequest:
        """A request with a step's own tensors, and the id and the parameters of the client's inference."""
        client = await self.inference() if isinstance(self.request, InferRequest) else Inference(model)
        parameters = {name: value for name, value in client.parameters.items() if name not in FRAMING}
        return await self.infer(model, Inference(model, "", client.id, parameters, tensors), live=live)

    async def chat(self, model: str, inputs: Values, *, live: bool) -> GenerateRequest:
        """A chat, or a completion for a client's completion, with some fields set by a step.

        `prompt` is the text of the only message, `system` that of the system message before it; any other input is the
        field of this name. An `input` without these makes an embedding. Raises `UnusableValueError`.
        """
        request = self.request
        if isinstance(request, GenerateRequest):
            request.payload.report(self._call.ignored)
            if "system" in inputs:
                await self._check("messages")
        fields: dict[str, Any] = {"model": model}
        fields |= {name: plain(value) for name, value in inputs.items() if name not in ("prompt", "system")}
        if "input" in inputs and not inputs.keys() & {"prompt", "system", "messages"}:
            if isinstance(request, EmbeddingRequest):
                return generate(request, fields, live=live)
            return openai.embedding_request({name: Raw(_encode(value)) for name, value in fields.items()}, 0)
        if isinstance(request, CompletionRequest) and "system" not in inputs and "messages" not in inputs:
            prompt = {"prompt": text_of(inputs["prompt"])} if "prompt" in inputs else {}
            return generate(request, {**fields, **prompt}, live=live)
        if "prompt" in inputs:
            fields["messages"] = [{"role": "user", "content": text_of(inputs["prompt"])}]
        if "system" in inputs:
            rest = fields.get("messages") or (_messages(request) if isinstance(request, ChatRequest) else [])
            others = [message for message in rest if message.get("role") not in ("system", "developer")]
            fields["messages"] = [{"role": "system", "content": text_of(inputs["system"])}, *others]
        if isinstance(request, ChatRequest):
            return generate(request, fields, live=live)
        if "messages" not in fields:
            raise UnusableValueError("a chat needs a `prompt` or `messages`")
        return openai.chat_request({name: Raw(_encode(value)) for name, value in fields.items()}, 0)


def generate(request: GenerateRequest, changes: dict[str, Any], *, live: bool) -> GenerateRequest:
    """A client's request with other fields."""
    fields = {**request.fields, **{name: Raw(_encode(value)) for name, value in changes.items()}}
    if not live:
        fields = {name: raw for name, raw in fields.items() if name not in _STREAM}
    made: GenerateRequest
    if isinstance(request, ChatRequest):
        made = openai.chat_request(fields, request.size)
    elif isinstance(request, CompletionRequest):
        made = openai.completion_request(fields, request.size)
    else:
        made = openai.embedding_request(fields, request.size)
    return replace(made, timeout=request.timeout)


def _field(request: GenerateRequest, name: str) -> Value:
    if name == "text":
        return _text(request)
    if name == "images":
        return _images(request)
    if name == "prompt_tokens":
        return request.prompt_tokens
    if name in ("stream", "user", "max_tokens", "n", "model"):
        return getattr(request, name)
    raw = request.fields.get(name)
    if raw is None:
        raise CallerError(f"The request has no `{name}`, which the model needs.", param=name)
    try:
        return _decode(raw)
    except decoding.MALFORMED_JSON as error:
        raise CallerError(f"`{name}` is not valid: {error}.", param=name) from None


def _text(request: GenerateRequest) -> Value:
    """The text of a request: the last message of the user, the prompt, or the text to embed."""
    if isinstance(request, ChatRequest):
        messages = [message for message in _messages(request) if message.get("role") == "user"]
        return content_text(messages[-1].get("content")) if messages else ""
    value = _field(request, "prompt" if isinstance(request, CompletionRequest) else "input")
    return value if isinstance(value, str) or not value else value[0] if isinstance(value[0], str) else value


def _strings(value: Value) -> Iterator[str]:
    """The texts inside a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _strings(each)


def _images(request: GenerateRequest) -> Value:
    """The URLs of the pictures in the last message of the user."""
    messages = _messages(request) if isinstance(request, ChatRequest) else []
    last = next((each.get("content") for each in reversed(messages) if each.get("role") == "user"), None)
    parts = [part.get("image_url") for part in last if isinstance(part, dict)] if isinstance(last, list) else []
    urls = [part["url"] for part in parts if isinstance(part, dict) and isinstance(part.get("url"), str)]
    if not urls:
        raise CallerError("The last message of the user has no picture, which the model needs.", param="messages")
    return urls


def _messages(request: GenerateRequest) -> list[dict[str, Any]]:
    try:
        messages = _decode(request.fields["messages"])
    except decoding.MALFORMED_JSON as error:
        raise CallerError(f"`messages` is not valid: {error}.", param="messages") from None
    return [message for message in messages if isinstance(message, dict)]
