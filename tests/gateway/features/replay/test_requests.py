"""The requests that are sent: their order, their exclusions, and those of traces."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.features.recording import entries, segments
from gateway.features.recording.entries import Content, Holder, PolicyFrame, RecordEntry
from gateway.features.recording.segments import CONTENTS, ENTRIES, POLICY, SegmentWriter
from gateway.features.replay import records
from gateway.features.replay.exchanging import tokens_of
from gateway.features.replay.records import RecordedTraffic, reason_not_sent, resent
from gateway.features.replay.sending import address_of, speed_of
from gateway.features.replay.traces import TracedTraffic, TraceError
from gateway.features.shadow.answers import WholeAnswer
from tests.support.recorded import KEY

BODY = {"model": "chat", "messages": [{"role": "user", "content": "hello"}]}
SECOND = 10**9


def content(number: int = 1, path: str = "/v1/chat/completions", method: str = "POST", **fields: Any) -> Content:
    return Content(number, path, method, {"content-type": "application/json"}, json.dumps({**BODY, **fields}).encode())


def entry(number: int = 1, **fields: Any) -> RecordEntry:
    made = RecordEntry(number, f"r{number}", 0, 5 * SECOND, "chat", status=200)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def segment(where: Path, requests: list[tuple[int, int]]) -> None:
    """A segment of requests by arrival and duration in seconds, in the order of their ends, as the recorder writes."""
    writer = SegmentWriter(segments.new_path(where, 1.0), KEY)
    writer.write(POLICY, entries.encode(PolicyFrame({}, 1.0, 0.0)))
    ordered = sorted(requests, key=sum)
    for start in range(0, len(ordered), 3):
        part = list(enumerate(ordered[start : start + 3], start))
        writer.write(CONTENTS, entries.encode(entries.ContentsFrame([content(number) for number, _ in part])))
        made = [entry(number, arrival=at * SECOND, end=float(took)) for number, (at, took) in part]
        writer.write(ENTRIES, entries.encode(entries.EntriesFrame([Holder("acme")], made)))
    writer.close()


TIMES = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 60)), min_size=1, max_size=30)


@given(st.lists(TIMES, min_size=1, max_size=4))
def test_requests_are_in_the_order_of_their_arrivals(
    tmp_path_factory: pytest.TempPathFactory, processes: list[list[tuple[int, int]]]
) -> None:
    where = tmp_path_factory.mktemp("traffic")
    for requests in processes:
        segment(where, requests)
    traffic = RecordedTraffic(where, KEY)
    arrivals = sorted(at for requests in processes for at, _ in requests)
    assert [request.due for request in traffic] == [at - arrivals[0] for at in arrivals]
    assert traffic.requests == len(arrivals)


def test_the_requests_in_memory_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment(tmp_path, [(0, 1000), *((at, 1) for at in range(1, 200))])
    monkeypatch.setattr(records, "MOST_HELD", 5 * 1200)
    due = [request.due for request in RecordedTraffic(tmp_path, KEY)]
    assert sorted(due) == list(range(200))  # none is lost
    assert due != sorted(due)  # the longest is late


@pytest.mark.parametrize(
    ("reason", "made", "of"),
    [
        ("", content(), entry()),
        ("", content(tools=[{"type": "function"}]), entry()),
        ("state", content(store=True), entry()),
        ("state", content(path="/v1/responses", previous_response_id="r"), entry()),
        ("effects", content(tools=[{"type": "web_search"}]), entry()),
        ("effects", content(path="/v1/messages", mcp_servers=[{}]), entry()),
        ("effects", content(path="/apps/shop/order"), entry(operation="app")),
        ("", content(path="/apps/shop/list?a=1", method="GET"), entry(operation="app")),
        ("state", content(path="/v2/models/sums/infer"), entry(sequence="s")),
        ("state", content(path="/v2/models/sums/infer", shared_memory_region="r"), entry()),
        ("state", content(path="/v2/models/sums/infer", id="i" * 100_000, shared_memory_region="r"), entry()),
        ("", content(path="/v2/models/sums/infer"), entry()),
        ("", content(path="/v1/models/sums:predict"), entry()),
        ("grpc", content(path="grpc:/v2/models/sums/infer"), entry()),
        ("body", content(path=""), entry()),
        ("body", Content(1, "/v1/chat/completions", body=b"[1]"), entry()),
        ("body", Content(1, "/v1/chat/completions", digest=b"d"), entry()),
        ("body", None, entry()),
        ("operation", content(path="/v1/files"), entry()),
    ],
)
def test_stateful_and_effectful_requests_are_not_sent(reason: str, made: Content | None, of: RecordEntry) -> None:
    assert reason_not_sent(of, made) == reason


def test_no_credential_of_a_record_is_sent() -> None:
    headers = {"authorization": "Bearer a", "x-api-key": "a", "cookie": "a", "host": "a", "x-team": "search"}
    made = resent(entry(headers=headers), content(), 0)
    assert made.headers == {"x-team": "search", "content-type": "application/json"}
    stored = resent(entry(), content(path="/v1/responses"), 0)
    assert json.loads(stored.body)["store"] is False


# ── traces ────────────────────────────────────────────────────────────────────────────────────────────────

TRACES = {
    "mooncake": '{"timestamp": 2000, "input_length": 600, "output_length": 9, "hash_ids": [7, 9]}\n'
    '{"timestamp": 500, "input_length": 520, "output_length": 4, "hash_ids": [7, 8]}\n',
    "burstgpt": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,520,4,524,Conversation log\n6.5,GPT-4,600,9,609,API log\n",
    "azure": "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2023-11-16 18:17:03.9799600,520,4\n2023-11-16 18:17:05.4799600,600,9\n",
}


@pytest.mark.parametrize("name", TRACES)
def test_traces_have_arrivals_and_lengths(tmp_path: Path, name: str) -> None:
    (path := tmp_path / "trace").write_text(TRACES[name])
    traffic = TracedTraffic(name, path, "big")
    requests = list(traffic)
    assert [request.due for request in requests] == [0.0, 1.5]
    bodies = [json.loads(request.body) for request in requests]
    prompts = [body["messages"][0]["content"].split() for body in bodies]
    assert [len(prompt) for prompt in prompts] == [520, 600]
    assert [body["max_tokens"] for body in bodies] == [4, 9]
    assert (prompts[0][:512] == prompts[1][:512]) == (name == "mooncake")
    assert prompts[0][512:] != prompts[1][512:520]
    assert [request.body for request in TracedTraffic(name, path, "big")] == [request.body for request in requests]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("mooncake", '{"timestamp": 1}\n', "line 1"),
        ("mooncake", '{"timestamp": 1, "input_length": -1, "output_length": 1}', "request 1: a length"),
        ("mooncake", "\n", "has no requests"),
        ("burstgpt", "Timestamp,Model\n1,a\n", "has no column Request tokens, Response tokens"),
        ("burstgpt", "Timestamp,Request tokens,Response tokens\nnan,1,1\n", "out of range"),
        ("azure", "TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,1\n", "line 2"),
        ("azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16\n", "line 2"),
        ("other", "", "--trace is one of mooncake, burstgpt, azure"),
    ],
)
def test_malformed_traces_are_errors(tmp_path: Path, name: str, text: str, message: str) -> None:
    (path := tmp_path / "trace").write_text(text)
    with pytest.raises(TraceError, match=message):
        TracedTraffic(name, path, "big")


# ── options and answers ───────────────────────────────────────────────────────────────────────────────────


def test_speeds_and_addresses() -> None:
    assert (speed_of("1"), speed_of("10x"), speed_of("max")) == (1.0, 10.0, None)
    for wrong in ("0", "-1", "nan", "inf", "fast", ""):
        with pytest.raises(ValueError, match="--speed"):
            speed_of(wrong)
    assert address_of("https://gateway:8443/base/") == "https://gateway:8443/base"
    for wrong in ("gateway", "ftp://a", "http://", "http://a?b=1", "http://u:p@a", "http://[::1"):
        with pytest.raises(ValueError, match=r"--against|IPv6"):
            address_of(wrong)


@pytest.mark.parametrize(
    ("data", "is_stream", "tokens"),
    [
        (b'{"usage": {"prompt_tokens": 5, "completion_tokens": 7}}', False, (5, 7)),
        (b'{"usage": {"input_tokens": 5, "output_tokens": 7}}', False, (5, 7)),
        (b'{"usage": null}', False, None),
        (b'{"usage": "no"}', False, None),
        (b"no JSON", False, None),
        (b'data: {"choices": []}\n\ndata: {"usage": {"prompt_tokens": 5}}\n\ndata: [DONE]\n\n', True, (5, 0)),
        (
            b'data: {"message": {"usage": {"input_tokens": 5, "output_tokens": 1}}}\n\n'
            b'data: {"usage": {"output_tokens": 7}}\n\n', True, (5, 7),
        ),
        (b'data: {"response": {"usage": {"input_tokens": 5, "output_tokens": 7}}}\n\n', True, (5, 7)),
    ],
)  # fmt: skip
def test_tokens_of_answers(data: bytes, is_stream: bool, tokens: tuple[int, int] | None) -> None:
    assert tokens_of(WholeAnswer(200, is_stream=is_stream, data=data)) == tokens
