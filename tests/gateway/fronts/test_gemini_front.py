"""Gemini's door over a real socket, with scripted upstreams and a strict stand-in of Google's API behind it."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from adapters.errors import CallerError, CapacityError, ContextTooLong, InferenceError, TransportError
from adapters.fake import FakeAdapter, Script
from adapters.registry import Address, make
from adapters.types import Usage
from adapters.wire import sse
from adapters.wire.gemini.content_request import ContentRequest
from tests.servers.stand_ins.anthropic import KEY as CLAUDE_KEY
from tests.servers.stand_ins.anthropic import MODEL as CLAUDE
from tests.servers.stand_ins.anthropic import anthropic
from tests.support.chats import DONE, USAGE, chunk, completion
from tests.support.doors import Before, Door, door
from tests.support.gateways import config
from tests.support.providers.gemini import KEY, MODEL, Gemini, gemini
from tests.support.providers.gemini_faults import faults

Object = dict[str, Any]
CALL = "/v1beta/models/chat:generateContent"
STREAM = "/v1beta/models/chat:streamGenerateContent"
TOOLS = [
    {
        "functionDeclarations": [
            {"name": "weather", "parameters": {"type": "OBJECT", "properties": {"n": {"type": "INTEGER"}}}}
        ]
    }
]


def contents(text: str = "hi there") -> list[Object]:
    return [{"role": "user", "parts": [{"text": text}]}]


def whole(content: str | None = "Hello!", finish: str = "stop", **message: Any) -> FakeAdapter:
    return FakeAdapter(Script(chunks=(completion(content, finish, **message),), usage=Usage(9, 4, exact=True)))


@asynccontextmanager
async def before(url: str, **pool: Any) -> AsyncIterator[Door]:
    """A door over a pool of one server."""
    (section,) = config(pools=[{"name": "main", "endpoints": [url], **pool}]).pools
    adapter = make(section, Address(url))
    try:
        async with door(Before(adapter)) as d:
            yield d
    finally:
        await adapter.aclose()


@asynccontextmanager
async def google() -> AsyncIterator[tuple[Door, Gemini]]:
    async with gemini() as server, before(server.url, key=KEY, model=MODEL, protocol="gemini") as d:
        yield d, server


async def post(d: Door, body: Any, path: str = CALL, **headers: str) -> tuple[int, Any]:
    response = await d.send("POST", path, body, **headers)
    return response.status, await response.json(content_type=None)


async def events(d: Door, body: Any) -> list[Object]:
    """The chunks of a stream."""
    response = await d.send("POST", f"{STREAM}?alt=sse", body)
    assert response.headers["content-type"] == "text/event-stream"
    written = (await response.read()).replace(b"\r\n", b"\n")
    return [json.loads(sse.data_of(event)) for event in written.strip().split(b"\n\n")]


# ── over chats ────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_chat_pool_answers_contents() -> None:
    async with door(whole()) as d:
        config_ = {
            "temperature": 0.5,
            "maxOutputTokens": 9,
            "stopSequences": ["x"],
            "thinkingConfig": {"thinkingBudget": -1},
        }
        system = {"parts": [{"text": "Be kind."}]}
        body = {"contents": contents(), "systemInstruction": system, "generationConfig": config_, "tools": TOOLS}
        status, answer = await post(d, body)
        assert status == 200
        assert answer["candidates"] == [
            {"content": {"parts": [{"text": "Hello!"}], "role": "model"}, "index": 0, "finishReason": "STOP"}
        ]
        assert answer["usageMetadata"]["totalTokenCount"] == 13
        sent = d.fake.calls[0].request
        assert isinstance(sent, ContentRequest)
        fields = {name: json.loads(bytes(raw)) for name, raw in sent.fields.items()}
        assert fields["messages"] == [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "hi there"},
        ]
        assert (fields["max_tokens"], fields["stop"], fields["temperature"]) == (9, ["x"], 0.5)
        assert fields["tools"][0]["function"]["parameters"]["properties"] == {"n": {"type": "integer"}}


async def test_a_stream_has_whole_calls_and_one_end() -> None:
    made = {"index": 0, "id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"n":'}}
    more = {"index": 0, "function": {"arguments": "1}"}}
    script = (
        chunk({"role": "assistant", "content": "Let me "}), chunk({"content": "see."}),
        chunk({"tool_calls": [made]}), chunk({"tool_calls": [more]}), chunk({}, "tool_calls"),
        chunk(None, usage=USAGE), DONE,
    )  # fmt: skip
    async with door(FakeAdapter(Script(chunks=script))) as d:
        received = await events(d, {"contents": contents(), "tools": TOOLS})
        parts = [part for each in received for part in each["candidates"][0]["content"]["parts"]]
        assert parts == [
            {"text": "Let me "}, {"text": "see."},
            {"functionCall": {"name": "weather", "args": {"n": 1}, "id": "c1"}},
        ]  # fmt: skip
        assert [each["candidates"][0].get("finishReason") for each in received][-1] == "STOP"
        assert sum("usageMetadata" in each for each in received) == 1


async def test_a_stream_without_events_is_one_array() -> None:
    script = (chunk({"role": "assistant", "content": "Hel"}), chunk({"content": "lo"}), chunk({}, "stop"), DONE)
    async with door(FakeAdapter(Script(chunks=script))) as d:
        _, answer = await post(d, {"contents": contents()}, STREAM)
        assert [each["candidates"][0]["content"]["parts"] for each in answer] == [
            [{"text": "Hel"}],
            [{"text": "lo"}],
            [],
        ]


@pytest.mark.parametrize(
    ("error", "status", "word"),
    [
        (CallerError("`max_tokens` is wrong.", param="max_tokens"), 400, "INVALID_ARGUMENT"),
        (CapacityError("The upstream is overloaded.", retry_after=7), 503, "UNAVAILABLE"),
        (ContextTooLong("too long"), 400, "INVALID_ARGUMENT"),
    ],
)
async def test_an_error_has_google_s_shape(error: InferenceError, status: int, word: str) -> None:
    async with door(FakeAdapter(Script(fault=error))) as d:
        got, answer = await post(d, {"contents": contents()})
        assert (got, answer["error"]["code"], answer["error"]["status"]) == (status, status, word)
        assert "max_tokens" not in answer["error"]["message"]
        assert ("RetryInfo" in json.dumps(answer)) == (status == 503)


async def test_a_broken_stream_ends_with_an_error() -> None:
    script = Script(
        chunks=(chunk({"role": "assistant", "content": "Hel"}),), fault=TransportError("gone"), fault_after=1
    )
    async with door(FakeAdapter(script)) as d:
        received = await events(d, {"contents": contents()})
        assert received[-1]["error"]["code"] == 502


# ── keys ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_key_comes_in_each_of_google_s_places() -> None:
    async with door(whole(), whole()) as d:
        key, body = d.rig.key.plaintext, json.dumps({"contents": contents()})
        for path, headers in ((CALL, {"x-goog-api-key": key}), (f"{CALL}?key={key}", {}), (CALL, {})):
            headers = {**headers, "content-type": "application/json"}
            async with d.http.post(d.url + path, data=body, headers=headers) as response:
                assert response.status == (200 if "key" in path or "x-goog-api-key" in headers else 401)
                if response.status == 401:
                    assert (await response.json(content_type=None))["error"]["status"] == "UNAUTHENTICATED"
        assert key not in repr(d.rig.log.lines)


async def test_models_and_unknown_paths() -> None:
    async with door(whole()) as d:
        response = await d.send("GET", "/v1beta/models")
        models = (await response.json(content_type=None))["models"]
        assert [model["name"] for model in models] == ["models/chat"]
        response = await d.send("GET", "/v1beta/models/chat")
        assert (await response.json(content_type=None))["name"] == "models/chat"
        for path in ("/v1beta/models/chat:explode", "/v1beta/models/none:generateContent"):
            status, answer = await post(d, {"contents": contents()}, path)
            assert (status, answer["error"]["status"]) == (404, "NOT_FOUND")


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_other_versions_are_the_same_api(version: str) -> None:
    async with door(whole()) as d:
        root, google_s = f"/{version}/models", {"x-goog-api-key": d.rig.key.plaintext}
        assert (await post(d, {"contents": contents()}, f"{root}/chat:generateContent"))[0] == 200
        status, answer = await post(d, {"contents": contents()}, f"{root}/chat:explodeContent")
        assert (status, answer["error"]["status"]) == (404, "NOT_FOUND")
        for path, shown in ((root, "models"), (f"{root}/chat", "name")):
            assert shown in await (await d.send("GET", path, **google_s)).json(content_type=None)


PROJECT_PATH = "/projects/p/locations/europe-west4"


@pytest.mark.parametrize("root", [f"/v1beta1{PROJECT_PATH}", f"/v1{PROJECT_PATH}", PROJECT_PATH, "/v1beta1", "/v1", ""])
async def test_gemini_at_vertex_is_the_same_api(root: str) -> None:
    async with door(whole(), whole()) as d:
        models = f"{root}/publishers/google/models"
        status, answer = await post(
            d, {"contents": contents(), "labels": {"team": "a"}}, f"{models}/chat:generateContent"
        )
        assert (status, answer["candidates"][0]["content"]["parts"]) == (200, [{"text": "Hello!"}])
        if PROJECT_PATH in root:
            assert (await post(d, {"contents": contents()}, f"{root}/endpoints/chat:generateContent"))[0] == 200
        for path in (f"{models}/chat:explode", f"{root}/publishers/acme/models/chat:generateContent"):
            status, answer = await post(d, {"contents": contents()}, path)
            assert (status, answer["error"]["status"]) == (404, "NOT_FOUND")
        for path, shown in ((models, "models"), (f"{models}/chat", "name")):
            assert shown in await (await d.send("GET", path)).json(content_type=None)


async def test_a_model_of_another_publisher_has_it_in_its_name() -> None:
    async with door(whole(), models=[{"name": "acme/chat", "routes": [{"to": "main"}]}]) as d:
        path = f"/v1beta1{PROJECT_PATH}/publishers/acme/models/chat:generateContent"
        assert (await post(d, {"contents": contents()}, path))[0] == 200


async def test_labels_do_not_reach_the_gemini_api() -> None:
    async with google() as (d, server):
        path = f"/v1beta1{PROJECT_PATH}/publishers/google/models/chat:generateContent"
        assert (await post(d, {"contents": contents(), "labels": {"team": "a"}}, path))[0] == 200
        assert "labels" not in server.bodies[0]
        assert d.rig.log.records[-1].ignored == ("labels",)


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({}, "contents"),
        ({"contents": []}, "contents"),
        ({"contents": contents(), "cachedContent": "cachedContents/1"}, "cachedContent"),
        ({"contents": contents(), "generationConfig": {"candidateCount": 2}}, "candidateCount"),
        ({"contents": contents(), "generationConfig": {"temperature": "hot"}}, "generationConfig"),
        ({"contents": [{"role": "user", "parts": [{"functionCall": {"name": "x"}}]}]}, "contents[0]"),
    ],
)
async def test_a_field_that_changes_the_answer_is_refused_by_name(body: Object, place: str) -> None:
    async with anthropic() as server, before(server.url, key=CLAUDE_KEY, model=CLAUDE, protocol="anthropic") as d:
        status, answer = await post(d, body)
        assert status == 400
        assert server.bodies == []
        assert place in answer["error"]["message"]


async def test_other_fields_are_left_out_and_listed() -> None:
    async with anthropic() as server, before(server.url, key=CLAUDE_KEY, model=CLAUDE, protocol="anthropic") as d:
        body = {
            "contents": contents(), "tools": [{"googleSearch": {}}], "generationConfig": {"speechConfig": {}},
            "system_instruction": {"parts": [{"text": "Be kind."}]},
        }  # fmt: skip
        response = await d.send("POST", CALL, body)
        assert response.status == 200
        assert set(response.headers["x-headrace-ignored"].split(", ")) == {"googleSearch", "speechConfig"}


# ── over Gemini ───────────────────────────────────────────────────────────────────────────────────────────


async def test_a_pool_of_gemini_has_the_client_s_own_values() -> None:
    async with google() as (d, server):
        body = {
            "contents": contents(),
            "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}],
        }
        status, answer = await post(d, body)
        assert (status, answer["responseId"]) == (200, "rsp-stand-in")
        assert server.bodies == [body]
        received = await events(d, body)
        assert (
            "".join(part.get("text", "") for each in received for part in each["candidates"][0]["content"]["parts"])
            == "hi there"
        )
        _, counted = await post(d, {"contents": contents()}, "/v1beta/models/chat:countTokens")
        assert counted == {"totalTokens": 3}
        assert [line.prompt_tokens for line in d.rig.log.lines][:2] == [3, 3]


async def test_embeddings_reach_gemini_by_both_doors() -> None:
    async with google() as (d, server):
        one = {"content": {"parts": [{"text": "abc"}]}, "taskType": "CLUSTERING", "outputDimensionality": 2}
        _, answer = await post(d, one, "/v1beta/models/chat:embedContent")
        assert answer == {"embedding": {"values": [0.003, 0.004]}}
        assert server.bodies[0]["requests"][0]["taskType"] == "CLUSTERING"
        requests = [{"model": "models/chat", **one}, {"model": "models/chat", **one}]
        _, answer = await post(d, {"requests": requests}, "/v1beta/models/chat:batchEmbedContents")
        assert len(answer["embeddings"]) == 2
        predict = f"/v1{PROJECT_PATH}/publishers/google/models/chat:predict"
        instances = [{"content": "abc", "task_type": "CLUSTERING"}, {"content": "d", "task_type": "CLUSTERING"}]
        body = {"instances": instances, "parameters": {"outputDimensionality": 2}}
        _, answer = await post(d, body, predict)
        vectors = [each["embeddings"] for each in answer["predictions"]]
        assert [vector["values"] for vector in vectors] == [[0.003, 0.004], [0.001, 0.002]]
        assert [vector["statistics"]["truncated"] for vector in vectors] == [False, False]
        assert server.bodies[-1]["requests"][0]["taskType"] == "CLUSTERING"
        for wrong in ([{"prompt": "a cat"}], [], [{"content": "a"}, instances[0]]):
            assert (await post(d, {"instances": wrong}, predict))[0] == 400
        texts = [f"{i}" for i in range(101)]
        _, answer = await post(d, {"model": "chat", "input": texts, "encoding_format": "base64"}, "/v1/embeddings")
        assert len(answer["data"]) == 101
        assert len(base64.b64decode(answer["data"][0]["embedding"])) == 16


# ── a loop of tools over another provider ─────────────────────────────────────────────────────────────────


async def test_thoughts_of_claude_return_through_the_signatures_of_calls() -> None:
    async with anthropic() as server, before(server.url, key=CLAUDE_KEY, model=CLAUDE, protocol="anthropic") as d:
        history = contents("think and call")
        thinking = {"includeThoughts": True, "thinkingBudget": 2048}
        body = {
            "contents": history,
            "tools": TOOLS,
            "generationConfig": {"maxOutputTokens": 4096, "thinkingConfig": thinking},
        }
        status, answer = await post(d, body)
        assert status == 200, answer
        parts = answer["candidates"][0]["content"]["parts"]
        (called,) = [part for part in parts if "functionCall" in part]
        assert {"text": "Let me see.", "thought": True} in parts
        base64.b64decode(called["thoughtSignature"], validate=True)
        result = {"name": "weather", "id": called["functionCall"]["id"], "response": {"output": "sunny"}}
        history += [{"role": "model", "parts": [called]}, {"role": "user", "parts": [{"functionResponse": result}]}]
        status, answer = await post(d, {**body, "contents": history})
        assert status == 200, answer
        returned = server.bodies[1]["messages"][1]["content"]
        assert [block["type"] for block in returned] == ["thinking", "tool_use"]
    async with google() as (d, other):  # and the session may move to Gemini, which does not get that text
        status, answer = await post(d, {"contents": history, "tools": TOOLS})
        assert status == 200, answer
        assert list(faults(other.bodies[0], MODEL)) == []


async def test_unsigned_thoughts_return_through_the_signatures_of_calls() -> None:
    """Clients leave thoughts out of a history, and some servers of chats demand them with each call."""
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    server = whole(None, "tool_calls", reasoning_content="Let me see.", tool_calls=[call])
    async with door(server) as d:
        _, answer = await post(d, {"contents": contents(), "tools": TOOLS})
        (called,) = [part for part in answer["candidates"][0]["content"]["parts"] if "functionCall" in part]
        result = {"functionResponse": {"name": "weather", "id": "call_1", "response": {"output": "sunny"}}}
        history = [*contents(), {"role": "model", "parts": [called]}, {"role": "user", "parts": [result]}]
        status, _ = await post(d, {"contents": history, "tools": TOOLS})
        assert status == 200
        sent: Any = server.calls[1].request
        turns = json.loads(bytes(sent.fields["messages"]))
        assert [turn.get("reasoning_content") for turn in turns] == [None, "Let me see.", None]
