"""The OpenAI adapter against upstreams that answer, refuse, fail and break off."""

import asyncio
import json
import struct
from base64 import b64encode
from email.utils import formatdate
from time import time
from typing import Any

import pytest

from adapters.call import Call
from adapters.errors import (
    AccountRefused,
    BackendError,
    CallerError,
    CapacityError,
    ContextTooLong,
    DeadlineError,
    InferenceError,
    ServerFailed,
    TooLarge,
    TransportError,
    Unsupported,
    UpstreamTimeout,
)
from adapters.http1.client import Client
from adapters.requests import EmbeddingRequest
from adapters.types import Usage
from adapters.upstreams.failed_status import MAX_ERROR_BODY
from adapters.upstreams.openai.client import OpenAIAdapter
from adapters.wire import internal_headers
from adapters.wire.openai import chat as wire
from tests.adapters.http1.raw import until
from tests.adapters.http1.scripted import Peer, Play, ReceivedRequest, answers, scripted
from tests.support.gateways import infer
from tests.support.openai_answers import (
    BODY,
    DONE,
    END,
    ERROR,
    HEAD,
    LONG,
    ONLY_USAGE,
    USAGE,
    A,
    B,
    adapting,
    call,
    chat,
    chunk,
    http,
    piece,
    recording,
    stream,
    streamed,
    within,
)

SOON = 0.05


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_upstream_sees_our_name_and_nothing_of_the_client() -> None:
    received: list[ReceivedRequest] = []
    async with adapting(recording(received, http(BODY)), model="real") as (adapter, upstream):
        await adapter.call(chat(temperature=0.5, user="u"), within())
    [only] = received
    assert only.line == "POST /v1/chat/completions HTTP/1.1"
    assert only.headers == {
        "host": f"127.0.0.1:{upstream.port}",
        "user-agent": "headrace",
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        "x-request-id": "id-1",
        "accept-encoding": "identity",
        "content-length": str(len(only.body)),
    }
    messages = [{"role": "user", "content": "hi"}]
    assert json.loads(only.body) == {"model": "real", "messages": messages, "temperature": 0.5, "user": "u"}


async def test_only_our_own_runtime_receives_tenant_and_priority() -> None:
    received: list[ReceivedRequest] = []
    headers = {"x-headrace-tenant": "other", "x-headrace-share": "100", "x-headrace-timeout": "1e6"}
    for options in ({"ours": True}, {}):
        async with adapting(recording(received, http(BODY)), **options) as (adapter, _):
            call = Call(within().deadline, "", "acme", headers=headers, share=2.5, priority="low")
            await adapter.call(chat(), call)
    ours, others = received
    decoded = internal_headers.decode(ours.headers)
    assert decoded[:3] == ("acme", 2.5, 1)
    assert LONG - 1 < decoded.seconds <= LONG  # by the test's own clock, which stands still
    assert not [name for name in others.headers if name.startswith("x-headrace")]


@pytest.mark.parametrize("ours", [True, False])
@pytest.mark.parametrize(("status", "named"), [(429, "tenant"), (429, None), (503, "server"), (503, "tenant")])
async def test_the_scope_of_a_refusal(ours: bool, status: int, named: str | None) -> None:
    """Our own runtime names the scope. A server of others cannot: its 429 may be for one client or for all."""
    more = [] if named is None else [f"x-headrace-refused: {named}"]
    refusal = http(b'{"error": {"message": "full"}}', "application/json", status, "retry-after: 2", *more)
    async with adapting(answers(refusal), ours=ours) as (adapter, _):
        with pytest.raises(CapacityError) as caught:
            await adapter.call(chat(), within())
    scope_of_ours = "tenant" if named == "tenant" else "server"
    assert caught.value.scope == (scope_of_ours if ours else "unknown" if status == 429 else "server")
    assert caught.value.retry_after == 2.0


@pytest.mark.parametrize(
    ("base", "calls", "probes"),
    [
        ("", "/v1/completions", "/health"),
        ("/", "/v1/completions", "/health"),
        ("/v1", "/v1/completions", "/health"),
        ("/v1/", "/v1/completions", "/health"),
        ("/api", "/api/v1/completions", "/api/health"),
        ("/api/v1", "/api/v1/completions", "/api/health"),
    ],
)
async def test_paths_under_a_base(base: str, calls: str, probes: str) -> None:
    received: list[ReceivedRequest] = []
    async with scripted(recording(received, http(BODY, "application/json", 200, "Connection: close"))) as upstream:
        adapter = OpenAIAdapter(Client(upstream.url + base))
        await adapter.call(wire.decode_completion(b'{"model": "m", "prompt": "a"}'), within())
        await adapter.probe(LONG)
        await adapter.aclose()
    assert [each.line.split(" ")[1] for each in received] == [calls, probes]


# ── whole answers ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=utf-8", "Application/JSON"])
async def test_whole(content_type: str) -> None:
    answer = await call(http(BODY, content_type), chat())
    assert (answer.status, answer.content_type, answer.body) == (200, "application/json", BODY)
    assert answer.usage == Usage(3, 2, exact=True, bytes=len(BODY))
    assert (answer.ended, answer.error) == (True, None)


@pytest.mark.parametrize("usage", ["null", "5", "{}", '{"prompt_tokens": -1, "completion_tokens": 2}'])
async def test_a_whole_answer_without_readable_usage_is_estimated(usage: str) -> None:
    body = b'{"choices": [{}], "usage": %b}' % usage.encode()
    answer = await call(http(body), chat())
    assert answer.body == body
    assert answer.usage == Usage(chat().prompt_tokens, len(body) // 4, exact=False, bytes=len(body))


@pytest.mark.parametrize("limit", [2**20, 8 * 2**20])
async def test_an_event_is_as_large_as_the_pool_allows(limit: int) -> None:
    image = b'data: {"choices":[{"delta":{"images":["%b"]}}]}' % (b"A" * 6 * 2**20)
    async with scripted(answers(stream(A, image, DONE))) as upstream:
        adapter = OpenAIAdapter(Client(upstream.url, max_answer=limit))
        answer = await adapter.call(chat(stream=True), within())
        if limit < len(image):
            with pytest.raises(BackendError, match="max_answer"):
                [piece async for piece in answer]
        else:
            assert image in b"".join([piece async for piece in answer])
        await adapter.aclose()


async def test_no_report_of_usage_costs_the_client_its_stream() -> None:
    reports = [b"5", b"{}", b'{"prompt_tokens": "x"}', b"[1]", b'{"completion_tokens": -1}']
    events = [b'data: {"choices":[{"delta":{"content":"a"}}],"usage":%b}' % report for report in reports]
    answer = await call(stream(*events, DONE), chat(stream=True))
    assert b"".join([piece async for piece in answer]) == b"".join(event + b"\n\n" for event in (*events, DONE))
    assert (answer.usage.completion_tokens, answer.usage.exact) == (len(events), False)


BAD = {
    "HTML": (http(b"<html>", "text/html"), False),
    "no content type": (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", False),
    "a stream that was not requested": (stream(A, DONE), False),
    "no answer where a stream was requested": (http(b"{}"), True),
    "no JSON": (http(b"oops"), False),
    "no choices": (http(b"{}"), False),
    "an error with 200": (http(b'{"error": "CUDA"}'), False),
    "nothing": (http(b""), False),
}


@pytest.mark.parametrize(("answer", "stream_requested"), BAD.values(), ids=BAD.keys())
async def test_a_malformed_answer_is_a_backend_error(answer: bytes, stream_requested: bool) -> None:
    with pytest.raises(BackendError):
        await call(answer, chat(stream=stream_requested))


@pytest.mark.parametrize("status", [200, 201, 202])
@pytest.mark.parametrize("include_usage", [False, True])
async def test_a_whole_answer_of_any_success_is_a_stream_for_a_client_of_streams(
    status: int, include_usage: bool
) -> None:
    tool_call: dict[str, object] = {"id": "c", "function": {"name": "f"}}
    message = {"role": "assistant", "content": "ab", "tool_calls": [tool_call]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    body = json.dumps({"id": "1", "object": "chat.completion", "choices": [choice], "usage": USAGE}).encode()
    whole = await call(http(body, "text/json", status), chat())
    assert whole.body == body
    parts, answer = await streamed(http(body, status=status), stream_options={"include_usage": include_usage})
    *events, done, rest = b"".join(parts).split(b"\n\n")
    assert (done, rest, answer.content_type) == (DONE, b"", "text/event-stream")
    assert answer.usage == Usage(3, 2, exact=True, bytes=answer.usage.bytes)
    opening, end, *usage = [json.loads(event.removeprefix(b"data: ")) for event in events]
    assert opening["object"] == "chat.completion.chunk"
    assert opening["choices"][0]["delta"] == {**message, "tool_calls": [{"index": 0, **tool_call}]}
    assert end["choices"] == [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]
    assert [each["usage"] for each in usage] == [USAGE] * include_usage


def embedding() -> EmbeddingRequest:
    return wire.decode_embedding(b'{"model":"m","input":["a"]}')


async def test_embeddings() -> None:
    body = b'{"object":"list","data":[{"embedding":[1.0]}],"usage":{"prompt_tokens":2,"total_tokens":2}}'
    received: list[ReceivedRequest] = []
    answer = http(body)
    async with adapting(recording(received, answer)) as (adapter, _):
        result = await adapter.call(embedding(), within())
    assert (result.body, result.usage.prompt_tokens, result.usage.exact) == (body, 2, True)
    assert received[0].line.split()[1] == "/v1/embeddings"


@pytest.mark.parametrize("encoding", ["float", "base64", None])
@pytest.mark.parametrize("written", ["float", "base64"])
async def test_embeddings_have_the_requested_form(encoding: str | None, written: str) -> None:
    vectors = [[0.5, -0.25, 1.0], [2.0, 0.0, 1.5]]
    forms: dict[str | None, list[Any]] = {
        "float": vectors,
        "base64": [b64encode(struct.pack("<3f", *vector)).decode() for vector in vectors],
    }
    entries = [{"index": i, "embedding": vector} for i, vector in enumerate(forms[written])]
    fields = {"model": "m", "input": ["a", "b"]} | ({"encoding_format": encoding} if encoding else {})
    answer = await call(
        http(json.dumps({"data": entries, "usage": {"prompt_tokens": 2}}).encode()),
        wire.decode_embedding(json.dumps(fields).encode()),
    )
    assert [entry["embedding"] for entry in json.loads(answer.body or b"")["data"]] == forms[encoding or "float"]
    assert answer.usage.prompt_tokens == 2


@pytest.mark.parametrize("vector", [[[0.5]], [1e300], ["a"], {}, None])
async def test_vectors_of_another_type_stay_as_they_are(vector: Any) -> None:
    body = json.dumps({"data": [{"embedding": vector}], "x": [{"embedding": [1]}]}).encode()
    request = wire.decode_embedding(b'{"model":"m","input":["a"],"encoding_format":"base64"}')
    assert (await call(http(body), request)).body == body


async def test_an_answer_without_embeddings_is_refused() -> None:
    body = b'{"choices":[]}'
    answer = http(body)
    async with adapting(answers(answer)) as (adapter, _):
        with pytest.raises(BackendError, match="`data`"):
            await adapter.call(embedding(), within())


async def test_tensors_are_not_its_own() -> None:
    async with adapting(answers(b"")) as (adapter, _):
        with pytest.raises(Unsupported, match="takes no tensors"):
            await adapter.call(infer(), within())


async def test_a_whole_answer_that_breaks_off() -> None:
    with pytest.raises(TransportError):
        await call(http(BODY)[:-1], chat())


# ── streams ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_usage_that_the_client_did_not_request_is_read_and_withheld() -> None:
    parts, answer = await streamed(stream(A, B, ONLY_USAGE, DONE))
    assert b"".join(parts) == b"".join([event + b"\n\n" for event in (A, B, DONE)])
    assert answer.usage == Usage(3, 2, exact=True, bytes=sum(map(len, parts)))
    assert (answer.ended, answer.error, answer.body) == (True, None, None)


async def test_usage_that_the_client_requested_is_forwarded() -> None:
    parts, answer = await streamed(stream(A, B, ONLY_USAGE, DONE), stream_options={"include_usage": True})
    assert b"".join(parts) == b"".join([event + b"\n\n" for event in (A, B, ONLY_USAGE, DONE)])
    assert answer.usage == Usage(3, 2, exact=True, bytes=sum(map(len, parts)))


async def test_usage_beside_a_choice_is_passed_on() -> None:
    last = chunk("b", usage=USAGE)
    parts, answer = await streamed(stream(A, last, DONE))
    assert b"".join(parts) == b"".join([event + b"\n\n" for event in (A, last, DONE)])
    assert answer.usage == Usage(3, 2, exact=True, bytes=sum(map(len, parts)))


async def test_without_usage_events_are_counted() -> None:
    _, answer = await streamed(stream(chunk("a", usage=None), A, B, DONE))
    assert (answer.usage.completion_tokens, answer.usage.exact) == (3, False)
    assert answer.usage.prompt_tokens > 0


async def test_all_in_one_piece() -> None:
    parts, answer = await streamed(HEAD + piece(A, B, ONLY_USAGE, DONE) + END)
    assert parts == [b"".join([event + b"\n\n" for event in (A, B, DONE)])]
    assert answer.usage.exact


async def test_nothing_is_passed_on_after_the_end() -> None:
    parts, answer = await streamed(HEAD + piece(A, DONE, B, ERROR) + END)
    assert parts == [A + b"\n\n" + DONE + b"\n\n"]
    assert answer.error is None


async def test_an_answer_does_not_begin_with_a_comment_but_may_hold_one() -> None:
    async def play(peer: Peer) -> None:
        await peer.request()
        peer.send(HEAD + piece(b": wait") + piece(b": wait", b"event: ping", A))
        await begun.wait()
        peer.send(piece(b": wait", b"data:", B, DONE) + END)

    begun = asyncio.Event()
    async with adapting(play) as (adapter, _):
        answer = await adapter.call(chat(stream=True), within())
        assert await anext(answer) == A + b"\n\n"
        begun.set()
        rest = b"".join([part async for part in answer])
    assert rest == b"".join([event + b"\n\n" for event in (b": wait", B, DONE)])


async def test_a_connection_is_used_again_after_a_stream() -> None:
    async def play(peer: Peer) -> None:
        while True:
            await peer.request()
            peer.send(HEAD + piece(A) + piece(DONE))
            await asyncio.sleep(0)  # servers send the last chunk on its own
            peer.send(END)

    async with adapting(play) as (adapter, upstream):
        for _ in range(5):
            answer = await adapter.call(chat(stream=True), within())
            assert len([part async for part in answer]) > 0
        assert upstream.accepted == 1


async def test_an_upstream_that_does_not_hang_up_after_the_end_is_left() -> None:
    async def play(peer: Peer) -> None:
        await peer.request()
        peer.send(HEAD + piece(A, DONE))
        await peer.left()

    async with adapting(play) as (adapter, upstream):
        answer = await adapter.call(chat(stream=True), within())
        assert [part async for part in answer] == [A + b"\n\n" + DONE + b"\n\n"]
        assert (answer.ended, answer.error) == (True, None)
        await until(lambda: upstream.left == 1)


GARBAGE = {
    "no JSON": b"data: oops",
    "an array": b"data: []",
    "half of it": A[:-2],
    "an error": ERROR,
    "an error beside choices": b'data: {"choices": [], "error": {"message": "x"}}',
}


@pytest.mark.parametrize("first", GARBAGE.values(), ids=GARBAGE.keys())
async def test_a_bad_first_event_is_no_answer(first: bytes) -> None:
    async with adapting(answers(stream(first, A, DONE))) as (adapter, upstream):
        with pytest.raises(BackendError) as caught:
            await adapter.call(chat(stream=True), within())
        assert "10.0.0.5" not in caught.value.message
        await until(lambda: upstream.left == 1)


async def broken(rest: bytes, expected: type[InferenceError]) -> None:
    """A stream whose first event came and whose rest is `rest`."""

    async def play(peer: Peer) -> None:
        await peer.request()
        peer.send(HEAD + piece(A))
        await begun.wait()
        peer.send(rest)

    begun = asyncio.Event()
    ends: list[BaseException | None] = []
    async with adapting(play) as (adapter, upstream):
        answer = await adapter.call(chat(stream=True), within())
        answer.when_ended(lambda _, error: ends.append(error))
        assert await anext(answer) == A + b"\n\n"
        begun.set()
        with pytest.raises(expected) as caught:
            async for _ in answer:
                pass
        assert type(caught.value) is expected
        assert (answer.ended, answer.error, ends) == (True, caught.value, [caught.value])
        assert not answer.usage.exact
        await until(lambda: upstream.left == 1)


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        (piece(ERROR), ServerFailed),
        (piece(b'data: {"usage" oops'), BackendError),
        (END, TransportError),
        (piece(B) + END, TransportError),
        (piece(B), TransportError),
        (b"", TransportError),
        (b"9\r\ndata", TransportError),
        (b"oops\r\n", BackendError),
    ],
    ids=[
        "error", "half an event", "no DONE", "no DONE after more", "cut off", "cut off at once",
        "cut inside a chunk", "bad framing",
    ],
)  # fmt: skip
async def test_a_broken_stream_raises(rest: bytes, expected: type[InferenceError]) -> None:
    await broken(rest, expected)


@pytest.mark.parametrize("answer", [HEAD + END, HEAD, stream(b": hello"), stream(ONLY_USAGE)])
async def test_a_stream_without_a_first_event_is_no_answer(answer: bytes) -> None:
    with pytest.raises(TransportError):
        await call(answer, chat(stream=True))


@pytest.mark.parametrize(
    ("limits", "expected"), [({"idle": SOON}, UpstreamTimeout), ({"total": 4 * SOON}, DeadlineError)]
)
async def test_a_stream_that_stops_is_left(limits: dict[str, float], expected: type[InferenceError]) -> None:
    async def play(peer: Peer) -> None:
        await peer.request()
        peer.send(HEAD + piece(A))
        await peer.left()

    async with adapting(play) as (adapter, upstream):
        answer = await adapter.call(chat(stream=True), within(**limits))
        with pytest.raises(expected):
            async for _ in answer:
                pass
        await until(lambda: upstream.left == 1)


# ── leaving ───────────────────────────────────────────────────────────────────────────────────────────────


async def endless(peer: Peer) -> None:
    await peer.request()
    peer.send(HEAD + piece(A))
    await peer.left()


async def test_a_client_that_leaves_ends_the_upstreams_work_at_once() -> None:
    async with adapting(endless) as (adapter, upstream):
        answer = await adapter.call(chat(stream=True), within())
        await anext(answer)
        await answer.aclose()
        await until(lambda: upstream.left == 1)
        assert answer.ended
        assert isinstance(answer.error, InferenceError)
        assert answer.error.kind == "cancelled"
        await answer.aclose()
        assert answer.usage == Usage(answer.usage.prompt_tokens, 1, exact=False, bytes=answer.usage.bytes)


async def test_a_reader_that_is_cancelled_ends_the_upstreams_work_at_once() -> None:
    async with adapting(endless) as (adapter, upstream):
        answer = await adapter.call(chat(stream=True), within())
        await anext(answer)
        waiting = asyncio.ensure_future(anext(answer))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until(lambda: upstream.left == 1)
        assert isinstance(answer.error, asyncio.CancelledError)


async def silent(peer: Peer) -> None:
    await peer.request()
    await peer.left()


async def pings(peer: Peer) -> None:
    await peer.request()
    peer.send(HEAD)
    while not peer.writer.transport.is_closing():
        peer.send(piece(b": wait"))
        await asyncio.sleep(SOON / 5)


@pytest.mark.parametrize("play", [pings, silent], ids=["before the first event", "before the head"])
async def test_a_call_that_is_cancelled_ends_the_upstreams_work_at_once(play: Play) -> None:
    async with adapting(play) as (adapter, upstream):
        calling = asyncio.create_task(adapter.call(chat(stream=True), within()))
        await until(lambda: upstream.accepted == 1)
        await asyncio.sleep(SOON)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await until(lambda: upstream.left == 1)


# ── errors ────────────────────────────────────────────────────────────────────────────────────────────────

STATUSES: dict[tuple[type[InferenceError], str], tuple[int, ...]] = {
    (AccountRefused, "upstream_quota_exhausted"): (402,),
    (BackendError, "upstream_error"): (204, 301, 302, 307, 501, 502, 599),
    (BackendError, "upstream_credential"): (401, 403),
    (BackendError, "upstream_path_not_found"): (404,),
    (CallerError, "invalid_request"): (400, 405, 409, 415, 422, 451),
    (CapacityError, "overloaded"): (425, 429, 498, 503, 529),
    (ServerFailed, "upstream_error"): (424, 500),
    (TooLarge, "request_too_large"): (413,),
    (TransportError, "upstream_unreachable"): (520, 521, 523, 525, 527, 530),
    (UpstreamTimeout, "upstream_timeout"): (408, 504, 522, 524),
}
STATUS = [(status, expected) for expected, statuses in STATUSES.items() for status in statuses]


@pytest.mark.parametrize("stream_requested", [False, True])
@pytest.mark.parametrize(("status", "expected"), STATUS)
async def test_statuses(status: int, expected: tuple[type[InferenceError], str], stream_requested: bool) -> None:
    body = b"" if status == 204 else b'{"error": {"message": "secret of 10.0.0.5", "param": "p"}}'
    with pytest.raises(InferenceError) as caught:
        await call(http(body, "application/json", status, "Location: http://elsewhere/"), chat(stream=stream_requested))
    assert (type(caught.value), caught.value.code) == expected
    # The client reads the server's words without addresses, except about the gateway's own key and configuration.
    hidden = status in (204, 401, 403, 404)
    assert ("secret" in caught.value.message) is not hidden
    logged = "" if caught.value.kind == "caller" or not body else ": secret of 10.0.0.5"
    assert caught.value.detail == f"{status}{logged}"
    assert "10.0.0.5" not in caught.value.message or caught.value.kind == "caller"


async def test_the_upstreams_message_about_a_bad_request_is_forwarded() -> None:
    body = {"error": {"message": "`top_p` is wrong", "type": "x", "param": "top_p", "code": "bad_value"}}
    with pytest.raises(CallerError) as caught:
        await call(http(json.dumps(body).encode(), "application/json", 400), chat())
    error = caught.value
    assert (error.message, error.param, error.code) == ("`top_p` is wrong", "top_p", "bad_value")


async def test_a_prompt_that_is_too_long() -> None:
    body = b'{"error": {"message": "too long", "code": "context_length_exceeded"}}'
    with pytest.raises(ContextTooLong):
        await call(http(body, "application/json", 400), chat())


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"\xff", b"[]", b'{"error": {"message": 5}}', b"a" * (MAX_ERROR_BODY + 1)],
    ids=["nothing", "HTML", "bytes", "array", "odd message", "endless"],
)
@pytest.mark.parametrize(("status", "expected"), [(400, CallerError), (429, CapacityError), (500, BackendError)])
async def test_the_status_is_enough(status: int, expected: type[InferenceError], body: bytes) -> None:
    with pytest.raises(expected) as caught:
        await call(http(body, "text/html", status), chat())
    assert type(caught.value) is expected
    assert caught.value.message


async def test_a_message_is_bounded() -> None:
    body = json.dumps({"error": {"message": "a" * 10_000}}).encode()
    with pytest.raises(CallerError) as caught:
        await call(http(body, "application/json", 400), chat())
    assert len(caught.value.message) == wire.MAX_MESSAGE


async def test_an_error_leaves_the_connection_to_the_next_request() -> None:
    answer = http(b'{"error": "x"}', "application/json", 400)
    async with adapting(answers(answer, answer, answer)) as (adapter, upstream):
        for _ in range(3):
            with pytest.raises(CallerError):
                await adapter.call(chat(), within())
        assert upstream.accepted == 1


@pytest.mark.parametrize(
    ("fields", "low", "high"),
    [
        (["Retry-After: 7"], 7, 7),
        (["Retry-After: 0"], 0, 0),
        (["Retry-After-Ms: 1500"], 1.5, 1.5),
        (["Retry-After-Ms: 250", "Retry-After: 9"], 0.25, 0.25),
        ([f"Retry-After: {formatdate(time() + 3600, usegmt=True)}"], 1, 3601),  # from when it was written
        ([f"Retry-After: {formatdate(time() - 3600, usegmt=True)}"], 0, 0),
        (["Retry-After-Ms: -5"], 0, 0),
    ],
)
async def test_retry_after(fields: list[str], low: float, high: float) -> None:
    with pytest.raises(CapacityError) as caught:
        await call(http(b"", "application/json", 429, *fields), chat())
    assert caught.value.retry_after is not None
    assert low <= caught.value.retry_after <= high


@pytest.mark.parametrize(
    "field",
    [
        "X: y", "Retry-After:", "Retry-After: soon", "Retry-After: -5", "Retry-After: 1e3", "Retry-After: \xb2",
        "Retry-After: " + "9" * 400, "Retry-After: Mon, 99 Foo 9999 99:99:99 GMT", "Retry-After-Ms: nan",
        "Retry-After-Ms: inf", "Retry-After-Ms: x",
    ],
)  # fmt: skip
async def test_retry_after_that_means_nothing(field: str) -> None:
    with pytest.raises(CapacityError) as caught:
        await call(http(b"", "application/json", 429, field), chat())
    assert caught.value.retry_after is None


# ── probes ────────────────────────────────────────────────────────────────────────────────────────────────


async def test_probe() -> None:
    answer = b"HTTP/1.1 %d X\r\nContent-Length: 2\r\n\r\nok"
    async with adapting(answers(answer % 200, answer % 503)) as (adapter, upstream):
        await adapter.probe(LONG)
        with pytest.raises(BackendError, match="503"):
            await adapter.probe(LONG)
        assert upstream.accepted == 1


async def test_a_probe_has_its_time() -> None:
    async with adapting(silent) as (adapter, upstream):
        with pytest.raises(InferenceError) as caught:
            await adapter.probe(SOON)
        assert isinstance(caught.value, UpstreamTimeout | DeadlineError)
        await until(lambda: upstream.left == 1)


async def test_a_probe_of_another_server_is_bounded() -> None:
    async with adapting(answers(http(b"a" * (MAX_ERROR_BODY + 1), "text/html"))) as (adapter, _):
        with pytest.raises(BackendError):
            await adapter.probe(LONG)
