"""A server of chats that plays the model in an agent's session: one call, two calls at once, then the last answer.

The name of the model selects the session. Names with `thinking` send thoughts and demand them back with each earlier
call, as DeepSeek's and Moonshot's APIs do. Names with `seeing` look at a picture. All others take only what OpenAI's
API takes. A request that an API would refuse is refused here, and noted in `refusals`.
"""

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web
from openai.types.chat import completion_create_params as chat_params

from tests.servers.stand_ins.serving import serving
from tests.servers.stand_ins.typed_dicts import mistakes
from tests.support.agents.offered import Object, Offered

FACTS, COPY, SECOND, PICTURE = "facts.txt", "copy.txt", "second.txt", "picture.png"
_FOLDER = re.compile(r"Find the secret word in the folder (\S+):")
SECRET = re.compile(r"secret word: (\w+)")
SAW = "I saw the picture"
MOST_USER, MOST_TOOLS = 64, 128
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
THOUGHT = "The file has it."


def task(folder: Path) -> str:
    """The text of the user. Requests without it, for titles and the like, are not part of the session."""
    return f"Find the secret word in the folder {folder}: look at its files."


class AgentModel:
    """A running one: what it received, and what it refused."""

    def __init__(self) -> None:
        self.url = ""
        self.bodies: list[Object] = []
        self.refusals: list[str] = []

    @property
    def turns(self) -> int:
        """The number of requests of the session, without those for titles and the like."""
        return sum(_session(body) is not None for body in self.bodies)

    async def models(self, _: web.Request) -> web.Response:
        """The list of models."""
        return web.json_response({"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "tests"}]})

    async def chat(self, http: web.Request) -> web.StreamResponse:
        """Answer one request of the session."""
        body = json.loads(await http.read())
        self.bodies.append(body)
        try:
            assert (refused := next(_mistakes(body), None)) is None, refused
            message = _answer(body)
        except AssertionError as error:
            self.refusals.append(str(error))
            return web.json_response({"error": {"message": str(error), "type": "invalid_request_error"}}, status=400)
        if not body.get("stream"):
            return web.json_response(_whole(body["model"], message))
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(http)
        for chunk in _chunks(body, message):
            await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response


@asynccontextmanager
async def agent_model() -> AsyncIterator[AgentModel]:
    """One that listens."""
    made = AgentModel()
    app = web.Application(client_max_size=64 << 20)
    app.add_routes([web.post("/v1/chat/completions", made.chat), web.get("/v1/models", made.models)])
    async with serving(app) as url:
        made.url = url
        yield made


# ── the session ───────────────────────────────────────────────────────────────────────────────────────


def _text(message: Object) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else " ".join(part.get("text", "") for part in content)


def _session(body: Object) -> tuple[Path, list[Object]] | None:
    """The folder of the task, and the messages since then; None if the request is not part of the session."""
    for i, message in enumerate(body["messages"]):
        match = _FOLDER.search(_text(message)) if message["role"] == "user" else None
        if match and body.get("tools"):
            return Path(match[1]), body["messages"][i:]
    return None


def _answer(body: Object) -> Object:
    """The model's message. The numbers of its turns are those of the calls in the history."""
    session = _session(body)
    if session is None:
        return {"role": "assistant", "content": _edit(body["messages"]) or "A short title"}
    folder, history = session
    turn = sum(bool(message.get("tool_calls")) for message in history)
    offered = Offered.of(body)
    if "seeing" in body["model"]:
        functions, text = ([offered.view(folder / PICTURE)], "I look.") if turn == 0 else ([], _seen(history))
    elif turn == 0:
        functions, text = [offered.read(folder / FACTS)], "I read the facts."
    elif turn == 1:
        functions, text = (
            [offered.run(f"cp {folder / FACTS} {folder / COPY}"), offered.run(f"echo two > {folder / SECOND}")],
            "I write.",
        )
    else:
        functions, text = [], _report(history)
    calls = [
        {"id": f"call_{turn}_{i}_{len(json.dumps(body))}", "type": "function", "function": function}
        for i, function in enumerate(functions)
    ]
    thought = {"reasoning_content": THOUGHT} if "thinking" in body["model"] else {}
    return {"role": "assistant", "content": text, **thought, **({"tool_calls": calls} if calls else {})}


def _edit(messages: list[Object]) -> str | None:
    """The text that writes a file, for an agent without tools, which sends the files with the task."""
    whole = " ".join(map(_text, messages))
    task, word = _FOLDER.search(whole), SECRET.search(whole)
    return f"The word is {word[1]}.\n\n{COPY}\n```\n{word[0]}\n```\n" if task and word else None


def _report(history: list[Object]) -> str:
    results = [_text(message) for message in history if message["role"] == "tool"]
    words = [match[1] for match in map(SECRET.search, results) if match]
    return f"The word is {words[0]}." if words else f"No result has the word: {results}"


def _seen(history: list[Object]) -> str:
    contents = [message["content"] for message in history if isinstance(message.get("content"), list)]
    images = [part["image_url"]["url"] for parts in contents for part in parts if part["type"] == "image_url"]
    return SAW if any(url.startswith("data:image/") and len(url) > 60 for url in images) else "I saw nothing"


# ── what an API refuses ───────────────────────────────────────────────────────────────────────────────


def _mistakes(body: Object) -> Iterator[str]:
    """Why OpenAI's API would refuse the body, or the API of a model that thinks."""
    thinks = "thinking" in body["model"]
    messages = [
        {k: v for k, v in each.items() if not (thinks and k == "reasoning_content")} for each in body["messages"]
    ]
    kind = "Streaming" if body.get("stream") else "NonStreaming"
    yield from mistakes({**body, "messages": messages}, getattr(chat_params, f"CompletionCreateParams{kind}"))
    if len(body.get("user") or "") > MOST_USER:
        yield f"Invalid 'user': string too long, {len(body['user'])} characters"
    if not body.get("tools"):
        yield from (f"'{name}' is only allowed when 'tools' are" for name in _OF_TOOLS if name in body)
    if len(body.get("tools") or ()) > MOST_TOOLS:
        yield f"'tools' has more than {MOST_TOOLS} items"
    for tool in body.get("tools") or ():
        if not _NAME.fullmatch(tool["function"]["name"]):
            yield f"Invalid name of a tool: {tool['function']['name']}"
    yield from _unpaired(messages)
    if thinks:
        calling = (i for i, each in enumerate(body["messages"]) if each.get("tool_calls"))
        for i in calling:
            if not body["messages"][i].get("reasoning_content"):
                yield f"reasoning_content is missing in the assistant message at index {i}"


_OF_TOOLS = ("tools", "tool_choice", "parallel_tool_calls")


def _unpaired(messages: list[Object]) -> Iterator[str]:
    """Calls without a result directly after them, and results without a call."""
    waiting: set[str] = set()
    for i, message in enumerate(messages):
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                yield f"messages[{i}] answers no call: {message['tool_call_id']}"
            waiting.discard(message["tool_call_id"])
            continue
        if waiting:
            yield f"messages[{i}] comes before the results of {sorted(waiting)}"
        waiting = {call["id"] for call in message.get("tool_calls") or ()}
    if waiting:
        yield f"no results of {sorted(waiting)}"


# ── the wire ──────────────────────────────────────────────────────────────────────────────────────────

_USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}


def _finish(message: Object) -> str:
    return "tool_calls" if "tool_calls" in message else "stop"


def _whole(model: str, message: Object) -> Object:
    choice = {"index": 0, "message": message, "finish_reason": _finish(message)}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": model}
    return {**head, "choices": [choice], "usage": _USAGE}


def _chunks(body: Object, message: Object) -> Iterator[Object]:
    """The message as a stream: thoughts, text, then each call in fragments."""
    head = {"id": f"chatcmpl-{len(body['messages'])}", "object": "chat.completion.chunk", "created": 1}

    def chunk(delta: Any, finish: str | None = None) -> Object:
        return {**head, "model": body["model"], "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": ""})
    for name in ("reasoning_content", "content"):
        for piece in re.findall(r"\S+\s*", message.get(name, "")):
            yield chunk({name: piece})
    for i, call in enumerate(message.get("tool_calls", ())):
        function = call["function"]
        yield chunk({"tool_calls": [{**call, "index": i, "function": {**function, "arguments": ""}}]})
        for at in range(0, len(function["arguments"]), 20):
            piece = function["arguments"][at : at + 20]
            yield chunk({"tool_calls": [{"index": i, "function": {"arguments": piece}}]})
    yield chunk({}, _finish(message))
    if (body.get("stream_options") or {}).get("include_usage"):
        yield {**head, "model": body["model"], "choices": [], "usage": _USAGE}
