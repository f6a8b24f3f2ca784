"""The differences between servers of OpenAI's family."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from adapters.call import Call
from adapters.errors import (
    BackendError,
    CallerError,
    CapacityError,
    ContentRefused,
    ContextTooLong,
    InferenceError,
    NotThere,
    ServerFailed,
    TransportError,
    Unsupported,
)
from adapters.http1.client import Client
from adapters.requests import AppRequest, ModelOrder, RankingRequest
from adapters.types import Usage
from adapters.upstreams.openai.client import OpenAIAdapter
from adapters.wire.openai import chat as wire
from adapters.wire.openai import model_field as named
from adapters.wire.openai.providers import DIALECTS
from config.schema.protocols.language import OpenAIProtocol
from tests.adapters.http1.scripted import Peer, ReceivedRequest, scripted
from tests.support.openai_answers import (
    BODY,
    DONE,
    END,
    HEAD,
    LONG,
    ONLY_USAGE,
    USAGE,
    A,
    B,
    chat,
    chunk,
    http,
    piece,
    stream,
    streamed,
    within,
)

Answering = Callable[[ReceivedRequest], bytes]
LAST = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'


@asynccontextmanager
async def adapting(
    answering: Answering | bytes, *, base: str = "", model: str | None = None, **options: Any
) -> AsyncIterator[tuple[OpenAIAdapter, list[ReceivedRequest]]]:
    """An adapter of a dialect, connected to a server that answers each request by its script."""
    received: list[ReceivedRequest] = []

    async def play(peer: Peer) -> None:
        while True:
            received.append(await peer.request())
            peer.send(answering if isinstance(answering, bytes) else answering(received[-1]))

    protocol = OpenAIProtocol.model_validate({"name": "openai", **options}, strict=True)
    async with scripted(play) as upstream:
        adapter = OpenAIAdapter(Client(upstream.url + base), model=model, options=protocol)
        yield adapter, received
        await adapter.aclose()


def lines(received: list[ReceivedRequest]) -> list[str]:
    return [each.line.rpartition(" ")[0] for each in received]


def models(*owners: str, **fields: Any) -> bytes:
    data = [{"id": f"m{i}", "object": "model", "owned_by": owner, **fields} for i, owner in enumerate(owners)]
    return http(json.dumps({"object": "list", "data": data}).encode())


# ── paths ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("base", "options", "calls", "probes"),
    [
        ("", {}, "/v1/chat/completions", "/health"),
        ("/v3", {}, "/v3/chat/completions", "/health"),
        ("", {"dialect": "openvino"}, "/v3/chat/completions", "/v2/health/ready"),
        ("/openai", {"dialect": "groq"}, "/openai/v1/chat/completions", "/openai/v1/models"),
        ("/openai/v1", {"dialect": "kserve"}, "/openai/v1/chat/completions", "/v2/health/ready"),
        ("", {"dialect": "ollama"}, "/v1/chat/completions", "/"),
        ("", {"dialect": "azure"}, "/openai/v1/chat/completions", "/openai/v1/models"),
        (
            "",
            {"dialect": "azure", "api_version": "2024-10-21"},
            "/openai/deployments/my%2Fmodel/chat/completions?api-version=2024-10-21",
            "/openai/models?api-version=2024-10-21",
        ),
    ],
)
async def test_paths_of_each_dialect(base: str, options: dict[str, str], calls: str, probes: str) -> None:
    async with adapting(http(BODY), base=base, model="my/model", **options) as (adapter, received):
        await adapter.call(chat(), within())
        await adapter.probe(LONG)
    assert lines(received)[:2] == [f"POST {calls}", f"GET {probes}"]


@pytest.mark.parametrize(
    ("options", "salted"),
    [
        ({"dialect": "vllm"}, True),
        ({"dialect": "sglang"}, True),
        ({"dialect": "vllm", "share_prefixes": True}, False),
        ({"dialect": "openai"}, False),
        ({}, False),
    ],
)
async def test_servers_with_a_prefix_cache_get_the_tenant_s_salt(options: dict[str, Any], salted: bool) -> None:
    async with adapting(http(BODY), **options) as (adapter, received):
        await adapter.call(chat(), Call(within().deadline, salt="a" * 32))
    assert json.loads(received[0].body).get("cache_salt") == ("a" * 32 if salted else None)


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("options", "given", "sent"),
    [
        ({}, {"max_tokens": 3, "max_completion_tokens": 4}, {"max_tokens": 3, "max_completion_tokens": 4}),
        ({"dialect": "openai"}, {"max_tokens": 3}, {"max_completion_tokens": 3}),
        ({"dialect": "openai"}, {"max_tokens": 3, "max_completion_tokens": 4}, {"max_completion_tokens": 4}),
        ({"dialect": "azure", "length": "max_tokens"}, {"max_completion_tokens": 3}, {"max_tokens": 3}),
        ({"dialect": "ollama"}, {"max_completion_tokens": 3}, {"max_tokens": 3}),
        ({"dialect": "mistral"}, {"max_completion_tokens": 3, "seed": 5}, {"max_tokens": 3, "random_seed": 5}),
        ({"dialect": "mistral"}, {"max_completion_tokens": None}, {}),
        ({"dialect": "groq"}, {"max_tokens": 3, "seed": 5}, {"max_tokens": 3, "seed": 5}),
    ],
)
async def test_fields_have_the_servers_names(
    options: dict[str, str], given: dict[str, Any], sent: dict[str, Any]
) -> None:
    async with adapting(http(BODY), **options) as (adapter, received):
        await adapter.call(chat(**given), within())
    body = json.loads(received[0].body)
    del body["model"], body["messages"]
    assert body == sent


async def test_only_chats_have_them_renamed() -> None:
    async with adapting(http(BODY), dialect="openai") as (adapter, received):
        await adapter.call(wire.decode_completion(b'{"model": "m", "prompt": "a", "max_tokens": 3}'), within())
    assert json.loads(received[0].body)["max_tokens"] == 3


@pytest.mark.parametrize("include_usage", [True, False])
async def test_a_server_that_refuses_stream_options_receives_none_and_reports_usage_anyway(include_usage: bool) -> None:
    last = b"data: " + json.dumps({"choices": [{"index": 0, "delta": {}}], "usage": USAGE}).encode()
    options = {"stream_options": {"include_usage": True}} if include_usage else {}
    async with adapting(stream(A, last, DONE), dialect="mistral") as (adapter, received):
        answer = await adapter.call(chat(stream=True, **options), within())
        parts = [part async for part in answer]
    assert "stream_options" not in json.loads(received[0].body)
    assert b"".join(parts) == A + b"\n\n" + last + b"\n\n" + DONE + b"\n\n"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.exact) == (3, 2, True)


# ── streams ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("spaced", [True, False])
async def test_a_stream_that_forgets_its_end_after_its_last_choice_is_whole(spaced: bool) -> None:
    last = LAST.replace(b'":"', b'": "') if spaced else LAST
    for events in ((A, last), (A, last, ONLY_USAGE)):
        parts, answer = await streamed(stream(*events))
        assert b"".join(parts).endswith(b"\n\n" + DONE + b"\n\n")
        assert answer.error is None


async def test_an_end_without_its_blank_line_is_one() -> None:
    parts, answer = await streamed(HEAD + piece(A) + b"e\r\ndata: [DONE]\n\r\n" + END)
    assert (b"".join(parts), answer.error) == (A + b"\n\n" + DONE + b"\n\n", None)


@pytest.mark.parametrize("fields", [{}, {"n": 2}], ids=["nothing had finished", "another choice may not have finished"])
async def test_a_stream_that_is_cut_is_not_whole(fields: dict[str, Any]) -> None:
    events = (A, LAST) if fields else (A, B)
    with pytest.raises(TransportError):
        await streamed(stream(*events), **fields)


async def test_usage_in_every_chunk() -> None:
    counted = [chunk("a", usage={"prompt_tokens": 3, "completion_tokens": i}) for i in (1, 2)]
    parts, answer = await streamed(stream(*counted, DONE))
    assert len(b"".join(parts).split(b"\n\n")) == 4
    assert answer.usage == Usage(3, 2, exact=True, bytes=answer.usage.bytes)


ERRORS_IN_STREAMS: dict[str, tuple[bytes, type[InferenceError]]] = {
    "nested": (b'data: {"error":{"message":"boom","type":"InternalServerError","code":500}}', ServerFailed),
    "flat": (b'data: {"object":"error","message":"boom","type":"InternalServerError","code":500}', ServerFailed),
    "the caller's": (b'data: {"object":"error","message":"bad","type":"BadRequestError","code":400}', CallerError),
    "by the event's name": (b'event: error\ndata: {"message":"boom"}', ServerFailed),
    "by the field": (b'error: {"code":500,"message":"boom","type":"server_error"}', ServerFailed),
    "too long": (b'error: {"code":400,"message":"boom","type":"exceed_context_size_error"}', ContextTooLong),
    "a text": (b'data: {"error":"boom","error_type":"generation"}', ServerFailed),
}


@pytest.mark.parametrize(("event", "expected"), ERRORS_IN_STREAMS.values(), ids=ERRORS_IN_STREAMS.keys())
@pytest.mark.parametrize("begun", [True, False])
async def test_an_error_inside_a_stream_in_every_form(
    event: bytes, expected: type[InferenceError], begun: bool
) -> None:
    with pytest.raises(InferenceError) as caught:
        await streamed(stream(*([A] if begun else []), event, DONE))
    assert type(caught.value) is expected


@pytest.mark.parametrize("content_type", ["text/plain", "application/octet-stream", ""])
async def test_an_answer_with_a_generic_type_has_the_requested_form(content_type: str) -> None:
    typed = f"Content-Type: {content_type}\r\n".encode() if content_type else b""
    whole = b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b" % (typed, len(BODY), BODY)
    events = HEAD.replace(b"Content-Type: text/event-stream; charset=utf-8\r\n", typed) + piece(A, DONE) + END
    async with adapting(lambda request: events if b'"stream":true' in request.body else whole) as (adapter, _):
        assert (await adapter.call(chat(), within())).body == BODY
        answer = await adapter.call(chat(stream=True), within())
        assert b"".join([part async for part in answer]) == A + b"\n\n" + DONE + b"\n\n"


async def test_a_refusal_with_200_in_the_place_of_a_stream_is_the_caller_s() -> None:
    body = b'{"object":"error","message":"`top_p` is wrong","type":"BadRequestError","code":400}'
    async with adapting(http(body)) as (adapter, _):
        for streams in (True, False):
            with pytest.raises(CallerError, match="top_p"):
                await adapter.call(chat(stream=streams), within())


# ── refusals ──────────────────────────────────────────────────────────────────────────────────────────────


def nested(**fields: Any) -> dict[str, Any]:
    """OpenAI's own shape."""
    return {"error": {"message": "m", **fields}}


NO = {"loc": ["body", "n"], "msg": "no"}
REFUSED: dict[str, tuple[int, Any, type[InferenceError], str | None]] = {
    "FastAPI": (422, {"detail": [NO]}, CallerError, "n"),
    "Mistral": (422, {"object": "error", "message": {"detail": [NO]}, "type": "t", "code": None}, CallerError, "n"),
    "Azure's filter": (400, nested(param="prompt", code="content_filter"), ContentRefused, "prompt"),
    "llama.cpp, too long": (400, nested(code=400, type="exceed_context_size_error"), ContextTooLong, None),
    "llama.cpp, loading": (503, nested(code=503, type="unavailable_error"), CapacityError, None),
    "Groq, full": (498, nested(type="t", code="flex_tier_capacity_exceeded"), CapacityError, None),
}


@pytest.mark.parametrize(("status", "body", "expected", "param"), REFUSED.values(), ids=REFUSED.keys())
async def test_refusals(status: int, body: Any, expected: type[InferenceError], param: str | None) -> None:
    async with adapting(http(json.dumps(body).encode(), "application/json", status)) as (adapter, _):
        with pytest.raises(InferenceError) as caught:
            await adapter.call(chat(), within())
    assert (type(caught.value), caught.value.param) == (expected, param)


UNKNOWN = {
    "error": {"message": "The model `m` does not exist.", "type": "NotFoundError", "param": "model", "code": 404}
}


async def test_a_name_of_the_client_s_own_that_one_server_does_not_know_opens_no_breaker() -> None:
    missing = http(json.dumps(UNKNOWN).encode(), "application/json", 404)
    async with adapting(missing) as (adapter, _):
        with pytest.raises(NotThere) as caught:
            await adapter.call(chat(), within())
    assert (caught.value.blames_endpoint, caught.value.retryable, caught.value.code) == (False, True, "model_not_found")
    async with adapting(missing, model="ours") as (adapter, _):
        with pytest.raises(BackendError) as ours:
            await adapter.call(chat(), within())
    assert ours.value.code == "upstream_model_not_found"


# ── health ────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_server_without_a_health_path_is_probed_by_its_models() -> None:
    def answering(request: ReceivedRequest) -> bytes:
        return models("somebody") if "/v1/models" in request.line else http(b"{}", "application/json", 404)

    async with adapting(answering) as (adapter, received):
        await adapter.probe(LONG)
        await adapter.probe(LONG)
    assert lines(received) == ["GET /health", "GET /v1/models", "GET /v1/models", "GET /v1/models"]


@pytest.mark.parametrize(
    ("owner", "dialect"),
    [(next(iter(dialect.owners)), name) for name, dialect in DIALECTS.items() if dialect.owners],
)
async def test_a_server_is_detected_by_the_owner_of_its_models(owner: str, dialect: str) -> None:
    async with adapting(lambda request: models(owner) if "models" in request.line else http(BODY)) as (
        adapter,
        received,
    ):
        await adapter.probe(LONG)
        await adapter.call(chat(max_completion_tokens=3, seed=1), within())
        renamed = {"max_completion_tokens", "seed"}
    body = json.loads(received[-1].body)
    renames, lacks = DIALECTS[dialect].renames, [name for lack in DIALECTS[dialect].lacks for name in lack.fields]
    sent = {renames.get(name, name) for name in renamed - set(lacks)}
    assert set(body) - {"model", "messages"} == sent


@pytest.mark.parametrize("answer", [models("vllm", "mistralai"), models(), http(b"[]"), http(b"{}", "x", 500)])
async def test_an_uninformative_answer_changes_nothing_and_is_requested_once(answer: bytes) -> None:
    async with adapting(lambda request: answer if "models" in request.line else http(b"ok")) as (adapter, received):
        await adapter.probe(LONG)
        await adapter.probe(LONG)
    assert lines(received) == ["GET /health", "GET /v1/models", "GET /health"]


async def test_a_vllm_that_sleeps_is_not_ready() -> None:
    asleep = True

    def answering(request: ReceivedRequest) -> bytes:
        body = {"is_sleeping": asleep} if "is_sleeping" in request.line else {}
        return http(json.dumps(body).encode())

    async with adapting(answering, dialect="vllm") as (adapter, received):
        with pytest.raises(BackendError, match="sleeps"):
            await adapter.probe(LONG)
        asleep = False
        await adapter.probe(LONG)
    assert lines(received) == ["GET /health", "GET /is_sleeping"] * 2


async def test_a_vllm_without_sleep_is_probed_for_it_once() -> None:
    def answering(request: ReceivedRequest) -> bytes:
        return http(b"{}", "application/json", 404 if "sleeping" in request.line else 200)

    async with adapting(answering, dialect="vllm") as (adapter, received):
        await adapter.probe(LONG)
        await adapter.probe(LONG)
    assert lines(received) == ["GET /health", "GET /is_sleeping", "GET /health"]


# ── orders ────────────────────────────────────────────────────────────────────────────────────────────────


def order(name: str, **parameters: Any) -> ModelOrder:
    body = json.dumps({"parameters": parameters}).encode() if parameters else b""
    return ModelOrder(model="sql", order=name, body=body)  # type: ignore[arg-type]


ORDERS: list[tuple[str, ModelOrder, str, dict[str, Any]]] = [
    ("vllm", order("load"), "/wake_up", {}),
    ("vllm", order("unload"), "/sleep?level=1&mode=wait", {}),
    ("vllm", order("unload", level=2), "/sleep?level=2&mode=wait", {}),
    ("vllm", order("load", lora_path="/a"), "/v1/load_lora_adapter", {"lora_name": "sql", "lora_path": "/a"}),
    ("sglang", order("load", lora_path="/a"), "/load_lora_adapter", {"lora_name": "sql", "lora_path": "/a"}),
    ("sglang", order("unload"), "/release_memory_occupation", {}),
    ("sglang", order("load"), "/resume_memory_occupation", {}),
    ("llama.cpp", order("load"), "/models/load", {"model": "sql"}),
    ("llama.cpp", order("unload"), "/models/unload", {"model": "sql"}),
    ("ollama", order("load"), "/api/generate", {"model": "sql", "stream": False}),
    ("ollama", order("unload"), "/api/generate", {"model": "sql", "stream": False, "keep_alive": 0}),
]


@pytest.mark.parametrize(("dialect", "order_of_client", "path", "body"), ORDERS)
async def test_orders(dialect: str, order_of_client: ModelOrder, path: str, body: dict[str, Any]) -> None:
    async with adapting(http(b'{"data":[]}'), dialect=dialect) as (adapter, received):
        answer = await adapter.call(order_of_client, within())
    assert answer.status == 200
    assert received[-1].line == f"POST {path} HTTP/1.1"
    assert json.loads(received[-1].body) == body


@pytest.mark.parametrize(("dialect", "path"), [("vllm", "/v1/unload_lora_adapter"), ("sglang", "/unload_lora_adapter")])
async def test_an_adapter_that_the_server_lists_is_unloaded_and_its_model_stays(dialect: str, path: str) -> None:
    listed = {"data": [{"id": "base", "parent": None}, {"id": "sql", "parent": "base"}]}
    async with adapting(http(json.dumps(listed).encode()), dialect=dialect) as (adapter, received):
        await adapter.call(order("unload"), within())
    assert lines(received) == ["GET /v1/models", f"POST {path}"]
    assert json.loads(received[-1].body) == {"lora_name": "sql"}


@pytest.mark.parametrize(
    ("dialect", "order_of_client", "status", "expected"),
    [
        ("vllm", order("load"), 404, Unsupported),
        ("vllm", order("load", lora_path="/a"), 400, CallerError),
        ("vllm", order("load", lora_path=3), 200, CallerError),
        ("vllm", order("unload", level=3), 200, CallerError),
        ("vllm", ModelOrder(model="sql", body=b"["), 200, CallerError),
        ("vllm", ModelOrder(model="sql", body=b'{"parameters":[]}'), 200, CallerError),
        ("vllm", order("load"), 500, BackendError),
        ("groq", order("load"), 200, Unsupported),
    ],
)
async def test_orders_that_fail(
    dialect: str, order_of_client: ModelOrder, status: int, expected: type[InferenceError]
) -> None:
    def answering(request: ReceivedRequest) -> bytes:
        return http(b'{"data":[]}', "application/json", status if request.line.startswith("POST") else 200)

    async with adapting(answering, dialect=dialect) as (adapter, _):
        with pytest.raises(InferenceError) as caught:
            await adapter.call(order_of_client, within())
    assert type(caught.value) is expected


# ── calls that are passed on ──────────────────────────────────────────────────────────────────────────────


def passed(path: str, **fields: Any) -> AppRequest:
    body = json.dumps({"model": "m", **fields}).encode()
    return AppRequest(model="m", path=path, content_type="application/json", body=body, codec=named.CODEC)


@pytest.mark.parametrize(
    ("path", "to"),
    [
        ("/rerank", "/v1/rerank"),
        ("/v1/rerank", "/v1/rerank"),
        ("/v2/rerank", "/v2/rerank"),
        ("/tokenize", "/tokenize"),
        ("/v1/audio/speech", "/v1/audio/speech"),
    ],
)
async def test_a_call_is_forwarded_under_the_servers_name_and_its_answer_back(path: str, to: str) -> None:
    body = b'{"results":[],"usage":{"total_tokens":9}}'
    passes = ("rerank", "tokenize", "audio")
    async with adapting(http(body, "application/json; charset=utf-8"), model="theirs", passes=passes) as (
        adapter,
        received,
    ):
        answer = await adapter.call(passed(path, model="other", query="q"), within())
    assert (answer.body, answer.content_type) == (body, "application/json; charset=utf-8")
    assert answer.usage == Usage(9, 0, exact=True, bytes=len(body))
    assert lines(received) == [f"POST {to}"]
    assert json.loads(received[0].body) == {"query": "q", "model": "theirs"}


RANKED: dict[str, tuple[bytes, Usage]] = {
    "usage": (b'{"results":[],"usage":{"total_tokens":9}}', Usage(9, 0, exact=True, rows=2)),
    "Cohere's tokens": (b'{"results":[],"meta":{"tokens":{"input_tokens":7}}}', Usage(7, 0, exact=True, rows=2)),
    "no tokens": (b'{"results":[],"meta":{"billed_units":{"search_units":1}}}', Usage(11, 0, rows=2)),
    "long": (b'{"usage":{"total_tokens":9},"results":["%b"]}' % (b"x" * 400_000), Usage(9, 0, exact=True, rows=2)),
    "odd counts": (b'{"usage":{"total_tokens":"many"},"meta":[]}', Usage(11, 0, rows=2)),
    "no JSON": (b"ranked", Usage(11, 0, rows=2)),
}


@pytest.mark.parametrize("name", RANKED)
async def test_a_ranking_is_charged_by_the_report_or_the_estimate(name: str) -> None:
    body, expected = RANKED[name]
    request = RankingRequest(
        model="m", path="/v1/rerank", content_type="application/json", body=b'{"model":"m"}', codec=named.CODEC,
        prompt_tokens=11, rows=2,
    )  # fmt: skip
    async with adapting(http(body, "application/json"), passes=("rerank",)) as (adapter, _):
        answer = await adapter.call(request, within())
    expected.bytes = len(body)
    assert (answer.body, answer.usage) == (body, expected)


@pytest.mark.parametrize("base", ["", "/v1", "/compatibility/v1"])
async def test_cohere_reranks_beside_its_api_for_chats(base: str) -> None:
    async with adapting(http(b"{}"), base=base, dialect="cohere", passes=("rerank",)) as (adapter, received):
        for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
            await adapter.call(passed(path), within())
    assert lines(received) == ["POST /v1/rerank", "POST /v1/rerank", "POST /v2/rerank"]


async def test_the_authorised_name_is_sent_whatever_the_body_has() -> None:
    async with adapting(http(b"{}"), passes=("rerank",)) as (adapter, received):
        await adapter.call(passed("/rerank", model="forbidden"), within())
    assert json.loads(received[0].body) == {"model": "m"}


async def test_sound_is_streamed() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: audio/mpeg\r\nTransfer-Encoding: chunked\r\n\r\n"
    sound = head + b"3\r\nabc\r\n3\r\ndef\r\n" + END
    async with adapting(sound, passes=("audio",)) as (adapter, _):
        answer = await adapter.call(passed("/v1/audio/speech", input="hi"), within())
        assert b"".join([part async for part in answer]) == b"abcdef"
    assert (answer.content_type, answer.usage.bytes) == ("audio/mpeg", 6)


@pytest.mark.parametrize("path", ["/rerank", "/v1/files", "", "/v1/chat/completions"])
async def test_paths_that_the_pool_does_not_list_are_not_forwarded(path: str) -> None:
    async with adapting(http(b"{}"), passes=("audio",)) as (adapter, received):
        with pytest.raises(Unsupported):
            await adapter.call(passed(path), within())
    assert received == []


@pytest.mark.parametrize(
    ("status", "expected"), [(400, CallerError), (401, BackendError), (404, BackendError), (429, CapacityError)]
)
async def test_a_refusal_of_one_is_typed(status: int, expected: type[InferenceError]) -> None:
    async with adapting(http(b'{"detail":"no"}', "application/json", status), passes=("rerank",)) as (adapter, _):
        with pytest.raises(InferenceError) as caught:
            await adapter.call(passed("/rerank"), within())
    assert type(caught.value) is expected
