"""Text Generation Inference as its API document (3.x) and its router define it, over a model of a few rules.

Strict where the real one is lenient: a parameter that the document does not list is refused. The model repeats the
prompt's last line word by word, a token each, until its end.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from tests.servers.stand_ins.serving import serving

VERSION = "3.3.6"
MAX_CONCURRENT = 128
_NUMBER = (int, float)
PARAMETERS: dict[str, tuple[Any, Callable[[Any], bool], str]] = {
    "best_of": (int, lambda v: 0 < v <= 2, "`best_of` must be > 0 and <= 2"),
    "temperature": (_NUMBER, lambda v: v > 0, "`temperature` must be strictly positive"),
    "repetition_penalty": (_NUMBER, lambda v: v > 0, "`repetition_penalty` must be strictly positive"),
    "frequency_penalty": (_NUMBER, lambda v: -2 <= v <= 2, "`frequency_penalty` must be >= -2.0 and <= 2.0"),
    "top_k": (int, lambda v: v > 0, "`top_k` must be strictly positive"),
    "top_p": (_NUMBER, lambda v: 0 < v < 1, "`top_p` must be > 0.0 and < 1.0"),
    "typical_p": (_NUMBER, lambda v: 0 < v < 1, "`typical_p` must be > 0.0 and < 1.0"),
    "do_sample": (bool, lambda v: True, ""),
    "max_new_tokens": (int, lambda v: v > 0, "`max_new_tokens` must be strictly positive"),
    "return_full_text": (bool, lambda v: True, ""),
    "stop": (list, lambda v: len(v) <= 4, "`stop` supports up to 4 stop sequences"),
    "truncate": (int, lambda v: v > 0, "`truncate` must be strictly positive"),
    "watermark": (bool, lambda v: True, ""),
    "details": (bool, lambda v: True, ""),
    "decoder_input_details": (bool, lambda v: True, ""),
    "seed": (int, lambda v: 0 <= v < 2**64, "`seed` is a u64"),
    "top_n_tokens": (int, lambda v: 0 <= v <= 5, "`top_n_tokens` must be >= 0 and <= 5"),
    "grammar": (dict, lambda v: v["type"] == "json" and "properties" in v["value"], "grammar is not valid"),
    "adapter_id": (str, lambda v: v == "customer-support", "adapter is not known"),
}


class Refused(Exception):
    """A refusal of the router: a status and a kind of error."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind

    @property
    def body(self) -> dict[str, str]:
        return {"error": str(self), "error_type": self.kind}


class Tgi:
    """One server. A test may have it be full, fail in the middle, be ill, or take its time."""

    def __init__(self, max_input: int = 1024, max_total: int = 2048) -> None:
        self.max_input = max_input
        self.max_total = max_total
        self.received: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.full = False
        self.healthy = True
        self.has_tokenizer = True
        self.fails_after: int | None = None
        self.cut_after: int | None = None
        self.gap = 0.0
        self.running = 0
        self.abandoned = 0
        self.url = ""

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/health", self._health)
        app.router.add_get("/info", self._info)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/generate", self._generate)
        app.router.add_post("/generate_stream", self._generate_stream)
        app.router.add_post("/tokenize", self._tokenize)
        app.router.add_post("/v1/chat/completions", self._chat)
        return app

    # ── what it is ────────────────────────────────────────────────────────────────────────────────────

    async def _health(self, _: web.Request) -> web.Response:
        if self.healthy:
            return web.Response()
        return web.json_response({"error": "unhealthy", "error_type": "healthcheck"}, status=503)

    async def _info(self, _: web.Request) -> web.Response:
        sizes = {"max_concurrent_requests": MAX_CONCURRENT, "max_best_of": 2, "max_stop_sequences": 4}
        lengths = {"max_input_tokens": self.max_input, "max_total_tokens": self.max_total}
        router = {"router": "text-generation-router", "version": VERSION, "sha": None, "docker_label": None}
        model = {"model_id": "parrot", "model_sha": None, "model_pipeline_tag": "text-generation"}
        return web.json_response({**model, **sizes, **lengths, "validation_workers": 2, **router})

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(text=f"tgi_batch_current_size {self.running}\ntgi_queue_size 0\n")

    async def _models(self, _: web.Request) -> web.Response:
        model = {"id": "parrot", "object": "model", "created": 0, "owned_by": "parrot"}
        return web.json_response({"object": "list", "data": [model]})

    async def _tokenize(self, http: web.Request) -> web.Response:
        if not self.has_tokenizer:
            return web.json_response({"error": "No fast tokenizer or template found", "error_type": "x"}, status=404)
        tokens, at = [], 0
        for number, word in enumerate(words((await http.json())["inputs"])):
            tokens.append({"id": number, "text": word, "start": at, "stop": at + len(word)})
            at += len(word)
        return web.json_response(tokens)

    # ── its own API ───────────────────────────────────────────────────────────────────────────────────

    async def _generate(self, http: web.Request) -> web.Response:
        try:
            prompt, given = self._validated(await self._body(http))
            tokens, reason = self._answer(prompt, given)
            async with self._at_work():
                await asyncio.sleep(self.gap * len(tokens))
                if self.fails_after is not None:
                    raise Refused(424, "generation", "Request failed during generation: CUDA at /opt/weights")
        except Refused as refused:
            return web.json_response(refused.body, status=refused.status)
        document: dict[str, Any] = {"generated_text": _text(tokens)}
        if given.get("details") or given.get("decoder_input_details"):
            prefill = [_token(i, word) for i, word in enumerate(words(prompt))]
            prefill = [{key: one[key] for key in ("id", "text", "logprob")} for one in prefill]
            document["details"] = {
                "finish_reason": reason,
                "generated_tokens": len(tokens),
                "seed": given.get("seed"),
                "prefill": prefill if given.get("decoder_input_details") else [],
                "tokens": tokens,
                **({"top_tokens": [_tops(one, given) for one in tokens]} if given.get("top_n_tokens") else {}),
            }
        counts = {"x-prompt-tokens": str(len(words(prompt))), "x-generated-tokens": str(len(tokens))}
        return web.json_response(document, headers=counts)

    async def _generate_stream(self, http: web.Request) -> web.StreamResponse:
        """Refusals are events too: the status is sent before the request is checked."""
        response = web.StreamResponse(headers={"content-type": "text/event-stream", "x-accel-buffering": "no"})
        body = await self._body(http)
        await response.prepare(http)
        try:
            await self._stream(body, response)
        except Refused as refused:
            await response.write(b"data:" + json.dumps(refused.body, separators=(",", ":")).encode() + b"\n\n")
        except (asyncio.CancelledError, ConnectionError):
            self.abandoned += 1
            raise
        return response

    async def _stream(self, body: dict[str, Any], response: web.StreamResponse) -> None:
        prompt, given = self._validated(body)
        if given.get("best_of", 1) != 1:
            raise Refused(422, "validation", "Input validation error: `best_of` != 1 is not supported when streaming")
        if given.get("decoder_input_details"):
            raise Refused(422, "validation", "Input validation error: `decoder_input_details` == true is not supported")
        tokens, reason = self._answer(prompt, given)
        async with self._at_work():
            for index, token in enumerate(tokens, 1):
                if self.fails_after is not None and index > self.fails_after:
                    raise Refused(424, "generation", "Request failed during generation: CUDA at /opt/weights")
                if self.cut_after is not None and index > self.cut_after:
                    return
                await asyncio.sleep(self.gap)
                last = index == len(tokens)
                details = {"finish_reason": reason, "generated_tokens": index, "seed": given.get("seed")}
                event = {
                    "index": index,
                    "token": token,
                    **({"top_tokens": _tops(token, given)} if given.get("top_n_tokens") else {}),
                    "generated_text": _text(tokens) if last else None,
                    "details": {**details, "input_length": len(words(prompt))}
                    if last and given.get("details")
                    else None,
                }
                if index == 2:
                    await response.write(b":\n\n")  # as its keep-alive does
                await response.write(b"data:" + json.dumps(event, separators=(",", ":")).encode() + b"\n\n")

    async def _body(self, http: web.Request) -> dict[str, Any]:
        self.headers.append(dict(http.headers))
        body: dict[str, Any] = await http.json()
        self.received.append(body)
        return body

    def _validated(self, body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        if self.full:
            raise Refused(429, "overloaded", "Model is overloaded")
        if set(body) - {"inputs", "parameters"} or not isinstance(body.get("inputs"), str):
            raise Refused(422, "validation", f"Input validation error: no such fields {sorted(body)}")
        given = {name: value for name, value in body.get("parameters", {}).items() if value is not None}
        for name, value in given.items():
            self._check(name, value)
        prompt = body["inputs"]
        if not prompt:
            raise Refused(422, "validation", "Input validation error: `inputs` cannot be empty")
        long, most = len(words(prompt)), given.get("max_new_tokens", 100)
        if long > self.max_input:
            message = f"`inputs` must have less than {self.max_input} tokens. Given: {long}"
            raise Refused(422, "validation", f"Input validation error: {message}")
        if long + most > self.max_total:
            message = f"`inputs` tokens + `max_new_tokens` must be <= {self.max_total}. Given: {long} `inputs` tokens"
            raise Refused(422, "validation", f"Input validation error: {message} and {most} `max_new_tokens`")
        return prompt, given

    def _check(self, name: str, value: Any) -> None:
        if name not in PARAMETERS:
            raise Refused(422, "validation", f"Input validation error: no parameter {name}")
        kind, right, message = PARAMETERS[name]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise Refused(422, "validation", f"Input validation error: {name} has the wrong type")
        if not right(value):
            raise Refused(422, "validation", f"Input validation error: {message}. Given: {value}")

    def _answer(self, prompt: str, given: dict[str, Any]) -> tuple[list[dict[str, Any]], str]:
        """The tokens of the answer, with the stop sequence and a token for the end of text, as in the real server."""
        tokens: list[dict[str, Any]] = []
        for word in words(continuation(prompt)):
            if len(tokens) == given.get("max_new_tokens", 100):
                return tokens, "length"
            tokens.append(_token(len(tokens) + 10, word))
            if any(_text(tokens).endswith(stop) for stop in given.get("stop", [])):
                return tokens, "stop_sequence"
        if len(tokens) == given.get("max_new_tokens", 100):
            return tokens, "length"
        return [*tokens, {"id": 2, "text": "</s>", "logprob": -0.1, "special": True}], "eos_token"

    @asynccontextmanager
    async def _at_work(self) -> AsyncIterator[None]:
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1

    # ── OpenAI's API ───────────────────────────────────────────────────────────────────────────────────

    async def _chat(self, http: web.Request) -> web.StreamResponse:
        body = await self._body(http)
        prompt = body["messages"][-1]["content"]
        own = {"max_new_tokens": body.get("max_tokens") or 100, "stop": body.get("stop") or [], "details": True}
        try:
            prompt, given = self._validated({"inputs": prompt, "parameters": own})
        except Refused as refused:
            return web.json_response(refused.body, status=refused.status)
        tokens, reason = self._answer(prompt, given)
        usage = {"prompt_tokens": len(words(prompt)), "completion_tokens": len(tokens)}
        usage["total_tokens"] = sum(usage.values())
        head = {"id": "", "created": 1700000000, "model": "parrot", "system_fingerprint": f"{VERSION}-native"}
        if not body.get("stream"):
            message = {"role": "assistant", "content": _text(tokens)}
            choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _openai(reason)}
            whole = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
            return web.json_response(whole)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(http)
        async with self._at_work():
            async for chunk in self._chunks(tokens, reason):
                await response.write(b"data: " + json.dumps({**head, **chunk}).encode() + b"\n\n")
        if (body.get("stream_options") or {}).get("include_usage") and self.fails_after is None:
            last = {**head, "object": "chat.completion.chunk", "choices": [], "usage": usage}
            await response.write(b"data: " + json.dumps(last).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _chunks(self, tokens: list[dict[str, Any]], reason: str) -> AsyncIterator[dict[str, Any]]:
        for index, token in enumerate(tokens, 1):
            await asyncio.sleep(self.gap)
            if self.fails_after is not None and index > self.fails_after:
                yield {"error": {"message": "Request failed during generation", "http_status_code": 424}}
                return
            delta = {"role": "assistant", "content": "" if token["special"] else token["text"]}
            last = _openai(reason) if index == len(tokens) else None
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": last}
            yield {"object": "chat.completion.chunk", "choices": [choice], "usage": None}


def words(text: str) -> list[str]:
    """A token each: what is before it belongs to it."""
    return re.findall(r"\s*\S+|\s+\Z", text)


def continuation(prompt: str) -> str:
    """The continuation of a prompt: its last line with more than a role."""
    spoken = re.sub(r"<\|[a-z_]+\|>(system|user|assistant)?|\[/?INST\]|</?s>", "\n", prompt)
    return ([line.strip() for line in spoken.split("\n") if line.strip()] or [""])[-1]


def _token(id_: int, text: str) -> dict[str, Any]:
    return {"id": id_, "text": text, "logprob": -0.25, "special": False}


def _tops(token: dict[str, Any], given: dict[str, Any]) -> list[dict[str, Any]]:
    likely = [token, *({**token, "text": f"{token['text']}{i}", "logprob": -1.0 - i} for i in range(5))]
    return likely[: given["top_n_tokens"]]


def _text(tokens: list[dict[str, Any]]) -> str:
    return "".join(token["text"] for token in tokens if not token["special"])


def _openai(reason: str) -> str:
    return "length" if reason == "length" else "stop"


@asynccontextmanager
async def tgi(**sizes: int) -> AsyncIterator[Tgi]:
    """One that listens on loopback."""
    made = Tgi(**sizes)
    async with serving(made.app()) as url:
        made.url = url
        yield made
