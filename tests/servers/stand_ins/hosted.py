"""Hosted APIs that implement OpenAI's, as their documents describe them: OpenAI, Azure OpenAI, Mistral, Groq.

The types of the official client define the allowed fields, less those that each service removes. Each has
its own paths, its header for the key, and its shape of errors.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from openai.types.audio.speech_create_params import SpeechCreateParams
from openai.types.chat import completion_create_params as chat_params
from openai.types.embedding_create_params import EmbeddingCreateParams
from openai.types.image_generate_params import ImageGenerateParamsNonStreaming
from openai.types.moderation_create_params import ModerationCreateParams

from tests.servers.stand_ins.serving import serving
from tests.servers.stand_ins.typed_dicts import mistakes

KEY = "sk-of-the-gateway"
MODEL = "parrot-1"
SOUND = bytes(range(256)) * 16
WORDS = ("one ", "two ", "three ", "four ", "five")
CONTEXT = 2000
"""Characters of a prompt."""


@dataclass(frozen=True, slots=True)
class Service:
    """A hosted service and its differences from OpenAI's."""

    name: str
    root: str
    """The path of its API."""
    key_header: str = "authorization"
    owner: str = "system"
    forbidden: frozenset[str] = frozenset()
    """Fields of a chat that it refuses."""
    added: Mapping[str, type] = field(default_factory=dict)
    """Fields that it has beyond OpenAI's."""
    usage_always: bool = False
    flat: bool = False


OPENAI = Service("openai", "/v1")
AZURE = Service("azure", "/openai", "api-key")
GROQ = Service("groq", "/openai/v1", owner="Meta", forbidden=frozenset({"logprobs", "logit_bias", "top_logprobs"}))
MISTRAL = Service(
    "mistral",
    "/v1",
    owner="mistralai",
    forbidden=frozenset({
        "max_completion_tokens", "seed", "stream_options", "logit_bias", "user", "store", "service_tier",
    }),
    added={"random_seed": int, "safe_prompt": bool},
    usage_always=True,
    flat=True,
)  # fmt: skip


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, message: str, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.param = status, code, param


class Hosted:
    """A running one."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.url = ""
        self.gap = 0.005
        self.received: list[Any] = []
        """The received bodies: JSON documents, and the fields of forms."""
        self.running = 0
        self.cancelled = 0

    def app(self) -> web.Application:
        """Its routes."""
        app = web.Application(client_max_size=64 * 1024**2, middlewares=[self._guard])
        root = self.service.root
        roots = [root, f"{root}/v1", f"{root}/deployments/{MODEL}"] if self.service is AZURE else [root]
        for prefix in roots:
            app.router.add_get(f"{prefix}/models", self._models)
            app.router.add_post(f"{prefix}/chat/completions", self._chat)
            app.router.add_post(f"{prefix}/embeddings", self._embeddings)
            app.router.add_post(f"{prefix}/audio/speech", self._speech)
            app.router.add_post(f"{prefix}/audio/transcriptions", self._transcription)
            app.router.add_post(f"{prefix}/audio/translations", self._transcription)
            app.router.add_post(f"{prefix}/images/generations", self._images)
            app.router.add_post(f"{prefix}/images/edits", self._image_form)
            app.router.add_post(f"{prefix}/images/variations", self._image_form)
            app.router.add_post(f"{prefix}/moderations", self._moderations)
        return app

    # ── at the door ───────────────────────────────────────────────────────────────────────────────────

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        try:
            self._check(request)
            answer: web.StreamResponse = await handler(request)
        except Refused as error:
            return self._refusal(error)
        except web.HTTPNotFound:
            return self._refusal(Refused(404, "Unknown request URL.", "unknown_url"))
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return answer

    def _check(self, request: web.Request) -> None:
        header = self.service.key_header
        expected = f"Bearer {KEY}" if header == "authorization" else KEY
        if request.headers.get(header) != expected:
            raise Refused(401, "Incorrect API key provided.", "invalid_api_key")
        classic = self.service is AZURE and not request.path.startswith("/openai/v1/")
        if classic and not request.query.get("api-version"):
            raise Refused(404, "Resource not found", "404")

    def _refusal(self, error: Refused) -> web.Response:
        if self.service.flat:
            field_error = {"type": "extra_forbidden", "loc": ["body", error.param], "msg": str(error)}
            message: Any = {"detail": [field_error]} if error.status == 422 else str(error)
            body: Any = {"object": "error", "message": message, "type": "invalid_request_error", "param": None}
            body["code"] = error.code
        else:
            type_ = "invalid_request_error" if error.status < 429 else "server_error"
            body = {"error": {"message": str(error), "type": type_, "param": error.param, "code": error.code}}
        return web.json_response(body, status=error.status)

    async def _body(self, request: web.Request, kind: Any) -> dict[str, Any]:
        """A JSON body that is of that type."""
        if request.content_type != "application/json":
            raise Refused(415, "Unsupported content type.")
        body = json.loads(await request.read())
        self.received.append(body)
        fields = {name: value for name, value in body.items() if name not in self.service.added}
        for name, expected_type in self.service.added.items():
            if not isinstance(body.get(name, expected_type()), expected_type):
                raise Refused(400, f"{name} is of another type", param=name)
        for name in self.service.forbidden & body.keys():
            raise Refused(422 if self.service.flat else 400, "Extra inputs are not permitted", param=name)
        if wrong := next(mistakes(fields, kind), None):
            raise Refused(422 if self.service.flat else 400, wrong, param=wrong.partition(":")[0])
        self._know(body["model"])
        return dict(body)

    def _know(self, model: str) -> None:
        if model != MODEL:
            raise Refused(
                404, f"The model `{model}` does not exist or you do not have access to it.", "model_not_found"
            )

    # ── what it does ──────────────────────────────────────────────────────────────────────────────────

    async def _models(self, _: web.Request) -> web.Response:
        listed = [{"id": MODEL, "object": "model", "created": 1, "owned_by": self.service.owner}]
        return web.json_response({"object": "list", "data": listed})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        streams = b'"stream":true' in (await request.read()).replace(b" ", b"")
        kind = (
            chat_params.CompletionCreateParamsStreaming if streams else chat_params.CompletionCreateParamsNonStreaming
        )
        body = await self._body(request, kind)
        if self.service is OPENAI and "max_tokens" in body:
            raise Refused(
                400, "Unsupported parameter: 'max_tokens' is not supported.", "unsupported_parameter", "max_tokens"
            )
        if len(json.dumps(body["messages"])) > CONTEXT:
            message = f"This model's maximum context length is {CONTEXT} characters."
            raise Refused(400, message, "context_length_exceeded", "messages")
        most = body.get("max_completion_tokens") or body.get("max_tokens") or len(WORDS)
        words = [WORDS[i % len(WORDS)] for i in range(most if most > 50 else min(most, len(WORDS)))]
        usage = {"prompt_tokens": 5, "completion_tokens": len(words), "total_tokens": 5 + len(words)}
        if streams:
            include_usage = (body.get("stream_options") or {}).get("include_usage", False)
            return await self._events(request, words, usage, include_usage=include_usage)
        choice = {"index": 0, "message": {"role": "assistant", "content": "".join(words)}, "finish_reason": "stop"}
        completion = {"id": "c1", "object": "chat.completion", "created": 1, "model": MODEL, "choices": [choice]}
        return web.json_response({**completion, "usage": usage})

    async def _events(
        self, request: web.Request, words: list[str], usage: dict[str, int], *, include_usage: bool
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
        self.running += 1
        try:
            for i, word in enumerate(words):
                last = i == len(words) - 1
                choice = {"index": 0, "delta": {"content": word}, "finish_reason": "stop" if last else None}
                chunk: dict[str, Any] = {**head, "choices": [choice]}
                if last and self.service.usage_always:
                    chunk["usage"] = usage
                await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
                await asyncio.sleep(self.gap)
            if include_usage:
                last_chunk = {**head, "choices": [], "usage": usage}
                await response.write(b"data: " + json.dumps(last_chunk).encode() + b"\n\n")
            await response.write(b"data: [DONE]\n\n")
        finally:
            self.running -= 1
        return response

    async def _embeddings(self, request: web.Request) -> web.Response:
        body = await self._body(request, EmbeddingCreateParams)
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        data = [{"object": "embedding", "index": i, "embedding": [float(len(t)), 0.5]} for i, t in enumerate(texts)]
        usage = {"prompt_tokens": len(texts), "total_tokens": len(texts)}
        return web.json_response({"object": "list", "data": data, "model": MODEL, "usage": usage})

    async def _speech(self, request: web.Request) -> web.Response:
        await self._body(request, SpeechCreateParams)
        return web.Response(body=SOUND, content_type="audio/mpeg")

    async def _images(self, request: web.Request) -> web.Response:
        await self._body(request, ImageGenerateParamsNonStreaming)
        usage = {"input_tokens": 4, "output_tokens": 6, "total_tokens": 10}
        return web.json_response({"created": 1, "data": [{"b64_json": "aGk="}], "usage": usage})

    async def _moderations(self, request: web.Request) -> web.Response:
        await self._body(request, ModerationCreateParams)
        return web.json_response({"id": "m1", "model": MODEL, "results": []})

    async def _form(self, request: web.Request, *required: str) -> dict[str, Any]:
        form: dict[str, Any] = {}
        for name, value in (await request.post()).items():
            form[name] = value.file.read() if isinstance(value, web.FileField) else value
        self.received.append(form)
        for name in ("model", *required):
            if name not in form:
                raise Refused(400, f"you must provide a {name} parameter", param=name)
        self._know(form["model"])
        return form

    async def _transcription(self, request: web.Request) -> web.Response:
        form = await self._form(request, "file")
        usage = {"type": "tokens", "input_tokens": 7, "output_tokens": 2, "total_tokens": 9}
        return web.json_response({"text": f"{len(form['file'])} bytes", "usage": usage})

    async def _image_form(self, request: web.Request) -> web.Response:
        await self._form(request, "image")
        return web.json_response({"created": 1, "data": [{"b64_json": "aGk="}]})


@asynccontextmanager
async def hosted(service: Service) -> AsyncIterator[Hosted]:
    """One that listens."""
    made = Hosted(service)
    async with serving(made.app()) as url:
        made.url = url
        yield made
