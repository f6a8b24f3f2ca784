"""mock_upstream.c and load.c, compiled and talking to each other on loopback."""

import contextlib
import json
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtests import native
from loadtests.gateways.replies import chat_body, http_request, post
from loadtests.gateways.workloads import Load, parse_load

CHUNKS = 3


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def port(cache: Path) -> Iterator[int]:
    """A mock upstream with short streams."""
    command = [str(native.build("mock_upstream", cache)), "--chunks", str(CHUNKS), "--gap-us", "1000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


def load(cache: Path, folder: Path, port: int, *arguments: str, stream: bool = False) -> Load:
    request = folder / "request.http"
    request.write_bytes(http_request(chat_body(stream=stream), ""))
    command = [str(native.build("load", cache)), *arguments, "--port", str(port), "--request", str(request)]
    return parse_load(subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout)


def exchange(port: int, *pieces: bytes) -> bytes:
    """Sends raw bytes and reads until the mock closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=300) as connection:
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                connection.sendall(piece)
            connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_fifty_poisson_requests_are_all_answered_with_the_same_bytes(cache: Path, tmp_path: Path, port: int) -> None:
    expected = tmp_path / "expected.json"
    expected.write_bytes(post(port, "", chat_body(stream=False)).body)
    open_loop = ("open", "--rate", "500", "--seconds", "0.1", "--connections", "8", "--expect", str(expected))
    seen = load(cache, tmp_path, port, *open_loop)
    assert (seen.sent, seen.completed, seen.failed) == (50, 50, 0)
    assert seen.latency_us is not None
    assert 0 < seen.latency_us.p50 <= seen.latency_us.p99 <= seen.latency_us.p100

    expected.write_bytes(b"something else")
    assert load(cache, tmp_path, port, *open_loop).failed == 50


def test_every_connection_of_a_closed_loop_is_busy_to_the_end(cache: Path, tmp_path: Path, port: int) -> None:
    seen = load(cache, tmp_path, port, "closed", "--seconds", "0.05", "--connections", "4")
    assert seen.sent == seen.completed > 4
    assert seen.completed - 4 <= seen.in_time <= seen.completed


def test_stamps_in_the_tokens_give_transit_times(cache: Path, tmp_path: Path, port: int) -> None:
    streams = ("stream", "--seconds", "0.05", "--connections", "4", "--tokens", str(CHUNKS))
    seen = load(cache, tmp_path, port, *streams, stream=True)
    assert seen.failed == 0
    assert seen.tokens == CHUNKS * seen.completed > 0
    assert seen.transit_us is not None
    assert seen.first_token_us is not None
    assert seen.transit_us.p50 > 0
    assert seen.first_token_us.p50 >= 1000  # the gap before the first token


def test_a_stream_with_too_few_tokens_is_a_failure(cache: Path, tmp_path: Path, port: int) -> None:
    streams = ("stream", "--seconds", "0.02", "--connections", "2", "--tokens", str(CHUNKS + 1))
    seen = load(cache, tmp_path, port, *streams, stream=True)
    assert seen.completed == 0
    assert seen.failed == seen.sent > 0


def test_usage_precedes_done_on_demand(port: int) -> None:
    body = json.dumps({"stream": True, "stream_options": {"include_usage": True}}).encode()
    events = re.findall(rb"data: (.*)\n\n", post(port, "", body).body)
    assert events[-1] == b"[DONE]"
    assert json.loads(events[-2])["usage"]["completion_tokens"] == CHUNKS
    assert [json.loads(event)["choices"][0]["finish_reason"] for event in events[:-2]] == [None] * CHUNKS + ["stop"]

    without = post(port, "", json.dumps({"stream": True}).encode()).body
    assert b"usage" not in without


def test_a_stream_flag_inside_a_message_is_text(port: int) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": 'set "stream": true'}]}).encode()
    assert json.loads(post(port, "", body).body)["object"] == "chat.completion"


def test_requests_may_come_in_any_pieces_chunked_or_pipelined(port: int) -> None:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunked = head + b'3\r\n{"s\r\nA\r\ntream": fa\r\n5\r\nlse }\r\n0\r\nTrailer: x\r\n\r\n'
    answers = exchange(port, *(chunked[i : i + 1] for i in range(len(chunked))))
    assert answers.startswith(b"HTTP/1.1 200 OK\r\n")
    models = b"GET /v1/models HTTP/1.1\r\n\r\n"
    assert exchange(port, models + models[:9], models[9:]).count(b"HTTP/1.1 200 OK") == 2


def test_requests_of_routers_to_a_worker_are_answered_and_others_are_404(port: int) -> None:
    for path in ("/health", "/v1/models", "/get_model_info", "/get_server_info"):
        assert exchange(port, f"GET {path} HTTP/1.1\r\n\r\n".encode()).startswith(b"HTTP/1.1 200 OK")
    assert exchange(port, b"GET /nothing HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 404")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"POST / HTTP/1.1\r\nContent-Length: 16777217\r\n\r\n" + b"x" * 16777217,
        b"GET / HTTP/1.1\r\nA: " + b"x" * 20000,
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nnot hex\r\n",
    ],
    ids=["body over 16 MiB", "head over 16 KiB", "no chunk size"],
)
def test_large_or_malformed_requests_are_closed_and_the_mock_continues(port: int, request_bytes: bytes) -> None:
    with contextlib.suppress(ConnectionResetError):
        assert exchange(port, request_bytes) == b""
    assert post(port, "", chat_body(stream=False)).status == 200


def test_a_client_that_leaves_a_stream_does_not_disturb_the_others(port: int) -> None:
    request = http_request(chat_body(stream=True), "")
    with socket.create_connection(("127.0.0.1", port), timeout=300) as leaver:
        leaver.sendall(request)
        assert leaver.recv(10)
    assert post(port, "", chat_body(stream=True)).body.endswith(b"data: [DONE]\n\n")


def test_a_body_of_a_mebibyte_is_taken(port: int) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": "x" * 1_000_000}]}).encode()
    assert post(port, "", body).status == 200


def test_a_program_is_compiled_once_for_a_state_of_its_source(cache: Path) -> None:
    first = native.build("load", cache)
    made = first.stat().st_mtime_ns
    assert native.build("load", cache) == first
    assert first.stat().st_mtime_ns == made


def test_without_a_compiler_the_error_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(native.BuildError, match="apt-get install gcc"):
        native.build("load", tmp_path)
