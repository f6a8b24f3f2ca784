"""A stream in any pieces has the same events, and its usage is that of its chunks."""

import json
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.http1.client import ClientResponse
from adapters.types import Usage
from adapters.upstreams.gemini.streams import GeminiChatStream
from adapters.wire.gemini.content_to_chat import ContentChunks
from tests.support.gateways import chat

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
