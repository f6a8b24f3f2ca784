"""Texts that break parsers, at every place of every door: the door refuses them, or its server can decode them."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
from yarl import URL

from adapters import ignored_fields
from adapters.http1.server import Limits, Server
from adapters.registry import Address, make
from adapters.wire.openai.model_field import PASSTHROUGH
from config.schema.batches import BatchesConfig
from config.schema.state import StoredResponsesConfig
from gateway.features.batches.service import BatchService
from gateway.features.stored.keeper import Keeper
from gateway.fronts.errors import openai_refusal
from gateway.process.client_fronts import client_fronts
from tests.support.doors import HI, Before, Door
from tests.support.gateways import PEPPER, Rig, config
from tests.support.hostile_texts import JSON_TEXTS, NO_JSON, URL_TEXTS, StrictServer, bodies

pytestmark = pytest.mark.realtime  # the databases have threads

PROTOCOLS = {"main": "openai", "claude": "anthropic", "tensors": "oip-http", "rows": "kserve-v1"}
USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "input_tokens": 1, "output_tokens": 1}
ANSWER = {
    "id": "1", "object": "chat.completion", "created": 1, "model": "m", "type": "message", "role": "assistant",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "a"}, "text": "a", "finish_reason": "stop"}],
    "content": [{"type": "text", "text": "a"}], "stop_reason": "end_turn", "data": [{"index": 0, "embedding": [1.0]}],
    "usage": USAGE, "input_tokens": 1, "model_name": "m", "outputs": [], "text_output": "a", "predictions": [1],
}  # fmt: skip
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CHAT = {
    "model": "chat",
    "messages": [
        {"role": "system", "content": "s", "name": "n"},
        {"role": "user", "content": [{"type": "text", "text": "t"}]},
        {"role": "assistant", "content": "a", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c", "content": "r"},
    ],
    "tools": [TOOL],
    "metadata": {"a": "b"},
}
RESPONSE = {
    "model": "chat",
    "input": [
        {"role": "user", "id": "i", "content": [{"type": "input_text", "text": "t"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "r"},
    ],
    "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
    "metadata": {"a": "b"},
    "store": True,
}
MESSAGE = {
    "model": "chat",
    "max_tokens": 5,
    "system": [{"type": "text", "text": "s"}],
    "messages": [
        {"role": "user", "content": "t"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {"a": "b"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "r"}]},
    ],
    "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
    "metadata": {"user_id": "u"},
    "stop_sequences": ["s"],
}
TENSOR = {
    "id": "7",
    "parameters": {"sequence_id": "s", "other": "o"},
    "inputs": [{"name": "A", "datatype": "BYTES", "shape": [1, 1], "parameters": {"p": 1}, "data": ["x"]}],
    "outputs": [{"name": "B", "parameters": {"binary_data": False}}],
}
ROWS = {"signature_name": "s", "instances": [{"a": "b"}], "parameters": {"p": "q"}}
SAMPLES: list[tuple[str, dict[str, Any], frozenset[str]]] = [
    ("/v1/chat/completions", CHAT, ignored_fields.CHAT),
    ("/openai/deployments/chat/chat/completions?api-version=1", CHAT, frozenset()),
    ("/v1/completions", {"model": "chat", "prompt": ["a"]}, ignored_fields.COMPLETION),
    ("/v1/embeddings", {"model": "chat", "input": ["a"]}, ignored_fields.EMBEDDING),
    ("/v1/responses", RESPONSE, ignored_fields.RESPONSE),
    ("/v1/responses/input_tokens", RESPONSE, frozenset()),
    ("/v1/messages", MESSAGE, ignored_fields.COUNT),
    ("/v1/messages", {**MESSAGE, "model": "claude"}, frozenset({"user", "x"})),
    ("/v1/messages/count_tokens", MESSAGE, frozenset()),
    ("/v1/conversations", {"items": RESPONSE["input"], "metadata": {"a": "b"}}, frozenset()),
    ("/v1/feedback", {"id": "i", "metric": "m", "value": 1}, frozenset({"experiment", "subject", "values"})),
    (
        "/v1/batches",
        {"input_file_id": "f", "endpoint": "/v1/embeddings", "completion_window": "24h", "metadata": {"a": "b"}},
        frozenset({"output_expires_after", "x"}),
    ),
    (
        "/v1/messages/batches",
        {"requests": [{"custom_id": "a", "params": {"model": "chat", "messages": HI}}]},
        frozenset({"x"}),
    ),
    ("/v2/models/tensors/infer", TENSOR, frozenset({"x"})),
    ("/v2/models/tensors/generate", {"text_input": "a", "parameters": {"p": "q"}}, frozenset({"id", "x"})),
    *((f"/v1/models/rows:{verb}", ROWS, frozenset({"x"})) for verb in ("predict", "explain", "classify", "regress")),
    *((path, {"model": "chat"}, ignored_fields.fields_of(path)) for path in PASSTHROUGH if "audio/t" not in path),
]
"""A path, a request, and the names of all fields that its API has."""
DIFFERENT = [case for case in SAMPLES if case[0] in (
    "/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/rerank", "/v1/batches", "/v2/models/tensors/infer",
    "/v1/models/rows:predict",
)]  # fmt: skip
READ = (
    "/v1/files?after={}", "/v1/files?limit={}", "/v1/files?purpose={}", "/v1/files/{}", "/v1/files/{}/content",
    "/v1/batches?after={}", "/v1/batches?limit={}", "/v1/batches/{}", "/v1/messages/batches?after_id={}",
    "/v1/messages/batches?limit={}", "/v1/messages/batches/{}", "/v1/responses/{}", "/v1/responses/r?stream={}",
    "/v1/responses/r/input_items?limit={}", "/v1/responses/r/input_items?after={}", "/v1/conversations/{}",
    "/v1/conversations/c/items?after={}", "/v1/conversations/c/items?limit={}", "/v1/conversations/c/items/{}",
    "/v1/models/{}", "/v2/models/{}", "/v2/models/tensors/versions/{}", "/v2/models/{}/ready", "/{}",
    "/v1/models/{}/versions/{}", "/v1/models/rows/versions/{}",
)  # fmt: skip
HEADERS = (
    "inference-header-content-length", "x-request-id", "anthropic-beta", "content-type", "accept", "accept-encoding",
    "authorization", "x-api-key", "traceparent", "x-headrace-priority", "content-encoding", "origin",
)  # fmt: skip


class Strict(NamedTuple):
    door: Door
    server: StrictServer

    async def send(self, method: str, path: str, body: bytes | None, **headers: str) -> tuple[int, Any]:
        sent = {**self.door.keyed, "content-type": "application/json", **headers}
        url = URL(self.door.url + path, encoded=True)
        async with self.door.http.request(method, url, data=body, headers=sent) as response:
            text = await response.read()
            where = (method, path[:100], headers, (body or b"")[:300], response.status, text[:300])
            assert response.status < 500, where
            if response.status >= 400:
                shape = json.loads(text)
                assert shape["error"], where
                assert (shape.get("type") == "error") == path.startswith("/v1/messages"), where
            return response.status, where

    def assert_unharmed(self) -> None:
        """No failure is charged to a server."""
        assert not self.server.failures
        ends = [record.error for record in self.door.rig.log.records if record.error is not None]
        assert not [error for error in ends if error.kind in ("backend", "transport")]


@asynccontextmanager
async def strict(folder: Path) -> AsyncIterator[Strict]:
    pools = [
        {"name": name, "endpoints": ["http://127.0.0.1:9"], "protocol": protocol}
        for name, protocol in PROTOCOLS.items()
    ]
    names = {"chat": "main", "claude": "claude", "tensors": "tensors", "rows": "rows"}
    models = [{"name": name, "routes": [{"to": pool}]} for name, pool in names.items()]
    database = f"sqlite:///{folder}/state.db"
    async with AsyncExitStack() as stack:
        server = StrictServer(ANSWER)
        behind = Server(server)
        host, port = await behind.listen_tcp("127.0.0.1", 0)
        stack.push_async_callback(behind.aclose)
        made = config(pools=pools, models=models)
        adapters = {pool.name: make(pool, Address(f"http://{host}:{port}")) for pool in made.pools}
        for adapter in adapters.values():
            stack.push_async_callback(adapter.aclose)
        rig = Rig(made, {name: [Before(adapter)] for name, adapter in adapters.items()})
        keeper = Keeper(database, StoredResponsesConfig(store="default"), 1 << 24)
        stack.push_async_callback(keeper.aclose)
        stack.callback(asyncio.create_task(keeper.run()).cancel)
        batches = BatchService(BatchesConfig(storage=f"file:{folder}/files"), database, lambda: PEPPER, time.time)
        stack.callback(batches.close)
        front = Server(
            client_fronts(rig.core, keeper=lambda: keeper, batches=lambda: batches), Limits(), openai_refusal
        )
        host, port = await front.listen_tcp("127.0.0.1", 0)
        stack.push_async_callback(front.aclose)
        http = await stack.enter_async_context(aiohttp.ClientSession())
        yield Strict(Door(rig, f"http://{host}:{port}", stack, http), server)
    rig.assert_idle()


@pytest.mark.parametrize(("path", "sample", "fields"), SAMPLES, ids=[path for path, *_ in SAMPLES])
async def test_no_text_of_a_body_becomes_a_failure_of_a_server(
    tmp_path: Path, path: str, sample: dict[str, Any], fields: frozenset[str]
) -> None:
    async with strict(tmp_path) as d:
        for place, before, after in bodies(sample, fields):
            for name, text in NO_JSON.items():
                status, where = await d.send("POST", path, before + text + after)
                assert status == 400 or path == "/v1/feedback", (place, name, where)  # it has no metrics: 404
            for text in JSON_TEXTS.values():
                await d.send("POST", path, before + text + after)
        d.assert_unharmed()


@pytest.mark.parametrize("path", READ)
async def test_no_text_of_a_url_is_an_outage(tmp_path: Path, path: str) -> None:
    async with strict(tmp_path) as d:
        for text in URL_TEXTS:
            for method in ("GET", "POST", "DELETE"):
                body = b"{}" if method == "POST" else None
                await d.send(method, path.replace("{}", text), body)
        if "?after" in path:
            assert (await d.send("GET", path.format("a%00b"), None))[0] == 400
        d.assert_unharmed()


@pytest.mark.parametrize("name", HEADERS)
async def test_no_text_of_a_header_becomes_a_failure(tmp_path: Path, name: str) -> None:
    async with strict(tmp_path) as d:
        for text in ("²", "٣", "9" * 5_000, "0" * 30 + "1", "\udcff", "[" * 5_000, "-1", "1e9", ""):
            for path, sample, _ in DIFFERENT:
                with contextlib.suppress(UnicodeEncodeError):
                    await d.send("POST", path, json.dumps(sample).encode(), **{name: text})
        d.assert_unharmed()


@pytest.mark.parametrize(
    ("path", "field"),
    [("/v1/responses", "previous_response_id"), ("/v1/responses", "conversation"), ("/v1/batches", "input_file_id")],
)
@pytest.mark.parametrize("id_", ["a\0b", "a\nb", "x" * 600])
async def test_an_id_that_no_database_stores_is_refused_before_a_query(
    tmp_path: Path, path: str, field: str, id_: str
) -> None:
    async with strict(tmp_path) as d:
        sample = next(sample for where, sample, _ in SAMPLES if where == path)
        status, where = await d.send("POST", path, json.dumps({**sample, field: id_}).encode())
        assert status == 400, where
        assert not (tmp_path / "state.db").exists()


async def test_a_stored_item_has_an_id_that_every_database_can_store(tmp_path: Path) -> None:
    async with strict(tmp_path) as d:
        items = [{"role": "user", "id": id_, "content": "x"} for id_ in ("good", "a\0b", "\x7f", "x" * 200)]
        made = await d.door.openai.conversations.create(items=items)  # type: ignore[arg-type]
        listed = (await d.door.openai.conversations.items.list(made.id, order="asc")).data
        assert [item.id == "good" or (item.id or "").startswith("msg_") for item in listed] == [True] * 4
