"""A stream in any pieces has the same events, and its usage is that of its chunks."""

import json
from collections.abc import Iterable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.base import Answer
from adapters.errors import BackendError, CapacityError, InferenceError, TransportError
from adapters.http1.client import ClientResponse
from adapters.requests import ChatRequest
from adapters.types import Usage
from adapters.upstreams.gemini.client import GeminiAdapter
from adapters.upstreams.gemini.paths import GeminiPaths
from adapters.upstreams.gemini.streams import GeminiChatStream
from adapters.wire.gemini import requests as contents
from adapters.wire.gemini.chat_to_answer import answer_of
from adapters.wire.gemini.content_to_chat import ContentChunks
from adapters.wire.openai.chat import decode_embedding
from tests.support.gateways import chat
from tests.support.openai_answers import within

Object = dict[str, Any]

counts = st.fixed_dictionaries(
    {},
    optional={
        name: st.integers(0, 9)
        for name in ("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "cachedContentTokenCount")
    },
)
part = st.one_of(
    st.fixed_dictionaries(
        {"text": st.text(st.characters(codec="utf-8"), max_size=6)}, optional={"thought": st.just(True)}
    ),
    st.fixed_dictionaries(
        {"functionCall": st.fixed_dictionaries({"name": st.just("f"), "args": st.just({"π": "\n\n"})})}
    ),
    st.just({"text": "", "thoughtSignature": "c2ln"}),
)
chunk = st.fixed_dictionaries({}, optional={"parts": st.lists(part, max_size=2), "usage": counts})


def written(chunks: list[Object], line_end: bytes) -> bytes:
    out = b""
    for i, each in enumerate(chunks):
        candidate: Object = {"content": {"parts": each["parts"], "role": "model"}} if "parts" in each else {}
        last = i == len(chunks) - 1
        answer: Object = {
            "candidates": [candidate | ({"finishReason": "STOP"} if last else {})] if candidate or last else []
        }
        if "usage" in each:
            answer["usageMetadata"] = each["usage"]
        out += b"data: %b%b" % (json.dumps(answer, ensure_ascii=False).encode(), line_end * 2)
    return out


def events(pieces: list[bytes]) -> tuple[bytes, Usage]:
    """The client's events, and the usage that is billed."""
    response = cast(ClientResponse, SimpleNamespace(max_answer=1 << 20))
    chunks = ContentChunks(0, "m", include_usage=True)
    chunks._token = "t"
    stream = GeminiChatStream(response, chat(stream=True), chunks)
    out = b"".join([stream._read(piece) for piece in pieces if piece])
    return out + stream._read(b""), stream.usage


@settings(max_examples=200, deadline=None)
@given(
    st.lists(chunk, min_size=1, max_size=5), st.lists(st.integers(0, 2000), max_size=8), st.booleans(), st.booleans()
)
def test_a_stream_in_any_pieces_has_the_same_events(
    chunks: list[Object], cuts: list[int], is_open: bool, has_cr: bool
) -> None:
    body = written(chunks, b"\r\n" if has_cr else b"\n")
    if is_open:
        body = body.rstrip(b"\r\n")  # the connection ends without a blank line
    ends = sorted({cut % (len(body) + 1) for cut in cuts} | {0, len(body)})
    in_pieces = [body[start:end] for start, end in pairwise(ends)]
    out, usage = events(in_pieces)
    plain, plain_usage = events([body])
    assert out == plain
    assert (usage.prompt_tokens, usage.completion_tokens) == (plain_usage.prompt_tokens, plain_usage.completion_tokens)
    assert out.endswith(b"data: [DONE]\n\n")


@settings(max_examples=200, deadline=None)
@given(st.lists(counts, min_size=1, max_size=5))
def test_tokens_are_billed_as_the_chunks_report_them(reports: list[Object]) -> None:
    """A later chunk may leave out a count; none replaces one by zero."""
    latest: Object = {}
    for report in reports:
        latest |= {name: count for name, count in report.items() if count}
    out, usage = events([written([{"parts": [{"text": "a"}], "usage": report} for report in reports], b"\r\n")])
    answered = latest.get("candidatesTokenCount", 0) + latest.get("thoughtsTokenCount", 0)
    if latest.get("promptTokenCount", 0) + answered:
        assert (usage.prompt_tokens, usage.completion_tokens) == (latest.get("promptTokenCount", 0), answered)
        assert usage.reasoning_tokens == latest.get("thoughtsTokenCount", 0)
    reported = json.loads(out.split(b"\n\n")[-3].removeprefix(b"data: "))["usage"]
    assert reported["total_tokens"] == usage.total_tokens


def candidate(text: str, *, index: int = 0, ends: bool = False) -> Object:
    end = {"finishReason": "STOP"} if ends else {}
    return {"content": {"parts": [{"text": text}], "role": "model"}, "index": index, **end}


def sse_of(chunks: Iterable[Object]) -> bytes:
    return b"".join([b"data: %b\n\n" % json.dumps(each).encode() for each in chunks])


def test_each_candidate_has_an_end() -> None:
    whole: list[Object] = [{"candidates": [candidate("a", ends=True)]}, {"candidates": [candidate("half", index=1)]}]
    with pytest.raises(TransportError):
        events([sse_of(whole)])
    whole.append({"candidates": [candidate("", index=1, ends=True)]})
    whole.append({"candidates": [candidate("", index=0)], "usageMetadata": {"totalTokenCount": 3}})
    out, _ = events([sse_of(whole)])
    assert out.count(b'"finish_reason":"stop"') == 2


# ── bodies in the place of a stream ───────────────────────────────────────────────────────────────────────

NATIVE = contents.decode_content(b'{"contents":[{"parts":[{"text":"q"}]}]}', "m", stream=True)
CUT: Object = {"candidates": [candidate("half")]}
ENDED: Object = {"candidates": [candidate("!", ends=True)]}
FAILED: Object = {"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}}


async def answered(request: Any, body: Any, monkeypatch: pytest.MonkeyPatch) -> Answer:
    """The answer for a server's body in JSON."""

    async def read() -> bytes:
        return json.dumps(body).encode()

    async def post(*_: Any) -> Any:
        return SimpleNamespace(headers={"content-type": "application/json"}, read=read)

    monkeypatch.setattr(GeminiAdapter, "_post", post)
    adapter = GeminiAdapter(cast(Any, SimpleNamespace(base_path="")), GeminiPaths("", "v1beta"), probe="/")
    return await adapter.call(request, within())


@pytest.mark.parametrize("request_", [chat(stream=True), NATIVE], ids=["chat", "native"])
@pytest.mark.parametrize(
    ("body", "kind"),
    [([CUT, FAILED], CapacityError), ([CUT], BackendError), ([], BackendError), (FAILED, CapacityError)],
)
async def test_an_array_without_its_end_is_no_answer(
    request_: ChatRequest, body: Any, kind: type[InferenceError], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(kind):
        await answered(request_, body, monkeypatch)


@pytest.mark.parametrize("request_", [chat(stream=True), NATIVE], ids=["chat", "native"])
async def test_an_array_is_billed_by_all_its_chunks(request_: ChatRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"promptTokenCount": 7, "candidatesTokenCount": 2, "cachedContentTokenCount": 3}
    body: list[Object] = [CUT | {"usageMetadata": counts}, ENDED | {"usageMetadata": {"candidatesTokenCount": 4}}]
    usage = (await answered(request_, body, monkeypatch)).usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, usage.exact) == (7, 4, 3, True)
    for report in (None, {"promptTokenCount": -7}, {"promptTokenCount": 10**22, "candidatesTokenCount": 1}):
        usage = (
            await answered(request_, [CUT, ENDED | ({"usageMetadata": report} if report else {})], monkeypatch)
        ).usage
        assert (usage.prompt_tokens, usage.exact) == (request_.prompt_tokens, False)
        assert usage.completion_tokens > 0
        assert usage.bytes > 0


async def test_a_number_beyond_32_bits_is_no_embedding(monkeypatch: pytest.MonkeyPatch) -> None:
    request = decode_embedding(b'{"model":"m","input":"q"}')
    with pytest.raises(BackendError):
        await answered(request, {"embeddings": [{"values": [1e39]}]}, monkeypatch)


@pytest.mark.parametrize("tops", [[None], [{"candidates": None}], [[]], [5], 5])
async def test_odd_likelihoods_are_left_out(tops: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    likely = {"chosenCandidates": [{"token": "a", "logProbability": None}], "topCandidates": tops}
    body: Object = {"candidates": [candidate("a", ends=True) | {"logprobsResult": likely}]}
    answer = await answered(chat(), body, monkeypatch)
    (content,) = json.loads(answer.body or b"")["choices"][0]["logprobs"]["content"]
    assert (content["logprob"], content["top_logprobs"]) == (0.0, [])


@pytest.mark.parametrize("tops", [None, [None], 5])
def test_a_chat_s_odd_likelihoods_are_left_out(tops: Any) -> None:
    likely = {"content": [{"token": "a", "logprob": -1, "top_logprobs": tops}]}
    message = {"role": "assistant", "content": "a"}
    body = {"choices": [{"index": 0, "message": message, "logprobs": likely, "finish_reason": "stop"}]}
    answer = json.loads(answer_of(json.dumps(body).encode(), Usage(1, 1), "r", "m", str, shows_thoughts=False))
    assert answer["candidates"][0]["logprobsResult"]["topCandidates"] == [{"candidates": []}]
