import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from adapters import native
from tests.adapters.native import builds, fuzz, outcomes

REQUEST = b"POST /v1/chat HTTP/1.1\r\nHost: h\r\nX-A: b\r\nContent-Length: 2\r\n\r\nok"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNK = b'e\r\ndata: {"a":1}\n\r\n'


def test_this_installation_has_the_core() -> None:
    assert native.AVAILABLE, "nothing was compiled: are there a compiler and Python's headers?"


def test_generated_sequences_have_one_outcome() -> None:
    count = fuzz.Count()
    seed = 1 if os.environ.get("CI") else time.time_ns()  # as Hypothesis does: in CI the same in each run
    for i in range(4):
        fuzz.compare(fuzz.installed(), seed + i, 1000, count)
    assert count.sequences == 12_100
    assert count.parsed > 2_400, "the core declined too much for the comparison to mean anything"
    assert count.operations > 200


def test_the_comparison_finds_a_difference() -> None:
    class Lenient:
        """A core that takes the whole input as the body of a request."""

        whole_request = staticmethod(lambda data, _: ("POST", b"/", {b"host": b"h"}, True, bytes(data)))
        whole_response = whole_chunks = encoded_fields = staticmethod(lambda *_: None)
        Row = None

    with pytest.raises(fuzz.DifferenceError, match="requests"):
        fuzz.compare(Lenient, 1, 10, fuzz.Count())  # type: ignore[arg-type]


def test_the_usual_messages_are_parsed() -> None:
    core = fuzz.installed()
    fields = {b"host": b"h", b"x-a": b"b", b"content-length": b"2"}
    assert core.whole_request(REQUEST, 100) == ("POST", b"/v1/chat", fields, True, b"ok")
    status, fields, keep_alive, body, complete = core.whole_response(HEAD + CHUNK)
    assert (status, keep_alive, body, complete) == (200, True, CHUNK[3:-2], False)
    assert list(fields) == [b"content-type", b"transfer-encoding"]
    assert core.whole_chunks(CHUNK + CHUNK + b"0\r\n\r\n") == (CHUNK[3:-2] * 2, True)


@pytest.mark.parametrize("cut", range(len(CHUNK) * 2 + 5))
def test_a_stream_continues_wherever_a_piece_is_cut(cut: int) -> None:
    data = CHUNK + CHUNK + b"0\r\n\r\n"
    for pieces in ([HEAD, data[:cut], data[cut:]], [HEAD + CHUNK, data[:cut], data[cut:]]):
        sent = [piece for piece in pieces if piece]
        with fuzz.using(fuzz.installed()):
            outcome = outcomes.of_responses(sent)
        with fuzz.using(None):
            assert outcome == outcomes.of_responses(sent)


def test_the_core_frees_its_memory() -> None:
    core = fuzz.installed()
    inputs = [REQUEST, REQUEST[:-1], REQUEST.replace(b"X-A", b"Host"), b"x", b""]
    replies = [HEAD, HEAD + CHUNK, HEAD.replace(b"chunked", b"gzip"), b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na"]
    texts = [[("a", "b"), ("c", "\u20ac")], [("a", 1)], [("a",)]]

    def call_all() -> None:
        for data in inputs:
            core.whole_request(data, 100)
        for data in replies:
            core.whole_response(data)
            core.whole_chunks(data)
        core.whole_chunks(CHUNK)
        for fields in texts:
            core.encoded_fields(fields)
        for wrong in ((), (REQUEST, "a")):
            with suppress(TypeError):
                core.whole_request(*wrong)
        with suppress(ValueError):
            core.encoded_fields([("a", "b\n")])

    for _ in range(100):
        call_all()
    before = sys.getallocatedblocks()
    for _ in range(1000):
        call_all()
    assert sys.getallocatedblocks() - before < 500


@pytest.mark.processes
def test_the_sanitizers_find_nothing(tmp_path: Path) -> None:
    done = builds.fuzz(builds.sanitized(tmp_path), "--seconds", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "without a difference" in done.stdout


@pytest.mark.processes
def test_python_alone_is_selected_by_the_environment() -> None:
    program = "from adapters import native; print(native.AVAILABLE, native.whole_chunks(b'1\\r\\na\\r\\n'))"
    for value, expected in (("0", "False None\n"), ("1", "True (b'a', False)\n")):
        environment = {"HEADRACE_NATIVE": value}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout == expected
