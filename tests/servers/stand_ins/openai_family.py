"""Servers of OpenAI's family as their documents and sources describe them, over a model that counts.

One table lists the differences of each server; a field outside a server's API is refused as that server refuses it.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.servers.stand_ins.serving import serving

MODEL = "counter"
KEY = "key-of-the-account"
WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
COMMON = {"model", "messages", "stream", "temperature", "top_p", "stop", "n"}


@dataclass(frozen=True, slots=True)
class Family:
    """One server. `error` writes a refusal, of a status, a message and a code."""

    system: str
    protocol: Mapping[str, Any]
    owner: str
    root: str = "/v1"
    key_header: str = ""
    """Empty: it requires no key."""
    lengths: frozenset[str] = frozenset({"max_tokens", "max_completion_tokens"})
    fields: frozenset[str] = frozenset({"stream_options", "seed"})
    """Fields of a chat that it accepts, beside those that all servers accept."""
    strict: bool = False
    """Whether an unknown field is refused."""
    error: str = "nested"
    checks_model: bool = True
    paths: Mapping[str, Any] = field(default_factory=dict)
    """Further answers to a GET by path: an object, or a text."""
    done: bool = True
    """Whether its streams end with `[DONE]`."""


class Server:
    """One that runs."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self.running = 0
        self.loaded = True
        self.url = ""

    def app(self) -> web.Application:
        app = web.Application()
        root = self.family.root
        app.router.add_post(f"{root}/chat/completions", self._chat)
        app.router.add_get(f"{root}/models", self._models)
        app.router.add_get("/running", self._running)
        app.router.add_post("/api/generate", self._generate)
        app.router.add_post("/{order:release_memory_occupation|resume_memory_occupation}", self._memory)
        for path in self.family.paths:
            app.router.add_get(path, self._path)
        return app

    # ── metadata ──────────────────────────────────────────────────────────────────────────────────────

    async def _models(self, http: web.Request) -> web.Response:
        if (refused := self._keyless(http)) is not None:
            return refused
        model = {"id": MODEL, "object": "model", "created": 0, "owned_by": self.family.owner}
        return web.json_response({"object": "list", "data": [model]})

    async def _running(self, _: web.Request) -> web.Response:
        return web.Response(text=f"running {self.running}\n")

    async def _path(self, http: web.Request) -> web.Response:
        document = self.family.paths[http.path]
        if isinstance(document, str):
            return web.Response(text=document.replace("RUNNING", str(self.running)))
        return web.json_response(document)

    async def _generate(self, http: web.Request) -> web.Response:
        """Ollama's: without a prompt it loads a model, or unloads it."""
        body = await http.json()
        if self.family.owner != "library":
            return self._refusal(404, "not found")
        self.loaded = body.get("keep_alive") != 0
        return web.json_response({"model": body["model"], "done": True})

    async def _memory(self, http: web.Request) -> web.Response:
        """SGLang's, which it gives back and takes again."""
        if self.family.owner != "sglang":
            return self._refusal(404, "not found")
        self.loaded = http.match_info["order"].startswith("resume")
        return web.Response()

    # ── chats ─────────────────────────────────────────────────────────────────────────────────────────

    async def _chat(self, http: web.Request) -> web.StreamResponse:
        if (refused := self._keyless(http)) is not None:
            return refused
        body = await http.json()
        if (refused := self._wrong(body)) is not None:
            return refused
        length = next((body[name] for name in sorted(self.family.lengths) if name in body), 10)
        words = (WORDS * (length // len(WORDS) + 1))[:length]
        self.running += 1
        try:
            return await (self._streamed(http, body, words) if body.get("stream") else self._whole(words))
        finally:
            self.running -= 1

    def _keyless(self, http: web.Request) -> web.Response | None:
        name = self.family.key_header
        expected = f"Bearer {KEY}" if name == "authorization" else KEY
        if name and http.headers.get(name) != expected:
            return self._refusal(401, "Incorrect API key provided.", "invalid_api_key")
        return None

    def _wrong(self, request: dict[str, Any]) -> web.Response | None:
        family = self.family
        allowed = COMMON | family.lengths | family.fields
        if family.strict and (extra := set(request) - allowed):
            return self._refusal(422, f"Extra inputs are not permitted: {min(extra)}")
        for name in {"max_tokens", "max_completion_tokens"} - family.lengths:
            if name in request:
                return self._refusal(400, f"Unsupported parameter: '{name}'", "unsupported_parameter")
        if not isinstance(request.get("temperature", 1), int | float):
            return self._refusal(422 if family.strict else 400, "temperature must be a number")
        if family.checks_model and request["model"] != MODEL:
            return self._refusal(404, f"The model `{request['model']}` does not exist", "model_not_found")
        return None

    def _refusal(self, status: int, message: str, code: str | None = None) -> web.Response:
        match self.family.error:
            case "flat":
                body: Any = {"object": "error", "message": message, "type": "BadRequestError", "code": status}
            case "text":
                body = {"error": message}
            case "detail":
                body = {"object": "error", "message": {"detail": [{"msg": message}]}, "type": "invalid_request_error"}
            case _:
                body = {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}
        return web.json_response(body, status=status)

    async def _whole(self, words: list[str]) -> web.Response:
        message = {"role": "assistant", "content": " ".join(words)}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
        return web.json_response(_object("chat.completion", choices=[choice], usage=_usage(words)))

    async def _streamed(self, http: web.Request, body: dict[str, Any], words: list[str]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        await response.prepare(http)
        for number, word in enumerate(words):
            await asyncio.sleep(0.01)
            last = {"finish_reason": "stop" if number + 1 == len(words) else None}
            choice = {"index": 0, "delta": {"content": f"{word} "}, **last}
            await response.write(_event(_object("chat.completion.chunk", choices=[choice])))
        if body.get("stream_options", {}).get("include_usage") or "stream_options" not in self.family.fields:
            await response.write(_event(_object("chat.completion.chunk", choices=[], usage=_usage(words))))
        if self.family.done:
            await response.write(b"data: [DONE]\n\n")
        return response


def _object(kind: str, **fields: Any) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": kind, "created": 0, "model": MODEL, **fields}


def _usage(words: list[str]) -> dict[str, int]:
    return {"prompt_tokens": 5, "completion_tokens": len(words), "total_tokens": 5 + len(words)}


def _event(event: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(event)}\n\n".encode()


@asynccontextmanager
async def server(family: Family) -> AsyncIterator[Server]:
    """One that listens."""
    made = Server(family)
    async with serving(made.app()) as url:
        made.url = url
        yield made
