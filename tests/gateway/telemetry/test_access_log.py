import asyncio
import errno
import json
import os
import tempfile
import threading
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest

from adapters.errors import TransportError
from adapters.types import Usage
from gateway.telemetry import Metrics, Telemetry, access_log
from gateway.telemetry.access_log import AccessLog
from gateway.telemetry.record import Record


def record(**fields: object) -> Record:
    made = Record("req-1", "chat", "127.0.0.1", 10.0)
    made.ended, made.time = 12.5, 1_800_000_000.25
    for name, value in fields.items():
        setattr(made, name, value)
    return made


async def lines_of(path: Path, *records: Record) -> list[dict[str, object]]:
    log = AccessLog(str(path))
    for one in records:
        log.write(one)
    await log.aclose()
    return parsed(path)


def parsed(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_a_line_has_the_outcome_of_the_request(tmp_path: Path) -> None:
    usage = Usage(prompt_tokens=7, completion_tokens=3, exact=True)
    served = record(tenant="acme", key="abc", model="chat", pool="p", endpoint="p/0", arm="p", stream=True)
    served.usage, served.trace.first_chunk, served.trace.upstream_seconds = usage, 11.0, 0.9
    served.trace.attempts += ["p/1", "p/0"]
    (line,) = await lines_of(tmp_path / "log", served)
    assert line == {
        "time": "2027-01-15T08:00:00.250Z",
        "request_id": "req-1", "client": "127.0.0.1", "tenant": "acme", "key": "abc", "operation": "chat",
        "model": "chat", "pool": "p", "endpoint": "p/0", "arm": "p", "attempts": 2, "stream": True, "status": 200,
        "duration_ms": 2500.0, "first_chunk_ms": 1000.0, "overhead_ms": 100.0,
        "prompt_tokens": 7, "completion_tokens": 3, "usage_exact": True,
    }  # fmt: skip


async def test_a_wait_is_not_the_gateways_own_time(tmp_path: Path) -> None:
    waited = record()
    trace = waited.trace
    trace.first_chunk, trace.upstream_seconds, trace.queue_seconds = 12.0, 0.5, 1.25
    turned_away = record(status=503)
    turned_away.trace.queue_seconds = 2.0
    line, refused = await lines_of(tmp_path / "log", waited, turned_away)
    assert (line["queue_ms"], line["overhead_ms"]) == (1250.0, 250.0)
    assert (refused["queue_ms"], "overhead_ms" in refused) == (2000.0, False)


async def test_a_failed_one_names_its_error(tmp_path: Path) -> None:
    (line,) = await lines_of(tmp_path / "log", record(error=TransportError("secret address"), status=502))
    assert (line["error"], line["code"], line["status"]) == ("transport", "upstream_unreachable", 502)
    assert "secret address" not in json.dumps(line)
    assert "prompt_tokens" not in line


async def test_lines_are_written_behind_the_requests(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = AccessLog(str(path))
    log.write(record())
    assert path.read_text() == ""
    async with asyncio.timeout(300):
        while not path.read_text():
            await asyncio.sleep(0.01)
    await log.aclose()
    assert len(path.read_text().splitlines()) == 1


async def test_lines_over_the_bound_are_dropped_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_log, "MAX_PENDING", 3)
    log = AccessLog(str(tmp_path / "log"))
    for _ in range(5):
        log.write(record())
    assert log.dropped == 2
    await log.aclose()
    assert len((tmp_path / "log").read_text().splitlines()) == 3


@given(st.lists(st.sampled_from(["write", "rename", "create", "truncate"]), max_size=30))
async def test_a_rotation_loses_no_line_and_no_worker_stays_behind(steps: list[str]) -> None:
    """Two workers write; what rotates renames, makes the new file itself or not, or copies and truncates."""
    with tempfile.TemporaryDirectory() as folder:
        path, copied = Path(folder) / "log", list[str]()
        workers = [AccessLog(str(path)) for _ in range(2)]
        sent: list[str] = []

        async def write() -> None:
            for worker in workers:
                sent.append(f"r{len(sent)}")
                worker.write(record(request_id=sent[-1]))
                await worker._flush()

        for number, step in enumerate(steps):
            if step == "write":
                await write()
            elif step in ("rename", "create") and path.exists():
                path.rename(path.with_suffix(f".{number}"))
                if step == "create":
                    path.touch()
            elif step == "truncate" and path.exists():
                copied += [str(line["request_id"]) for line in parsed(path)]
                os.truncate(path, 0)
        await write()
        await write()
        before = len(sent)
        await write()
        rotated = [str(line["request_id"]) for name in os.listdir(folder) for line in parsed(path.with_name(name))]
        assert Counter(copied + rotated) == Counter(sent)
        assert [line["request_id"] for line in parsed(path)][-2:] == sent[before:]
        for worker in workers:
            await worker.aclose()


async def test_a_name_that_cannot_be_opened_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = AccessLog(str(tmp_path / "log"))
    (tmp_path / "log").rename(tmp_path / "log.1")
    (tmp_path / "log").mkdir()
    for _ in range(3):
        log.write(record())
        await log._flush()
    await log.aclose()
    assert len(parsed(tmp_path / "log.1")) == 3
    assert len(caplog.messages) == 1


async def test_a_disk_that_is_full_costs_lines_and_no_request() -> None:
    log = AccessLog("/dev/full")
    log.write(record())
    log.write(record())
    await log._flush_soon()
    assert log.dropped == 2
    await log.aclose()


async def test_a_line_that_a_full_disk_cut_off_does_not_spoil_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    room, write = [700], os.write

    def limited(fd: int, data: bytes) -> int:
        """A disk with so much room: it takes a part, and then refuses."""
        count = min(room[0], len(data))
        if not count:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        room[0] -= count
        return write(fd, data[:count])

    monkeypatch.setattr(os, "write", limited)
    log = AccessLog(str(tmp_path / "log"))
    for _ in range(3):
        for _ in range(5):
            log.write(record())
        await log._flush()
    room[0] = 10**6
    log.write(record())
    await log._flush()
    await log.aclose()
    lines = (tmp_path / "log").read_bytes().splitlines()
    torn = [line for line in lines if not line.endswith(b"}")]
    assert len(torn) == 1
    assert all(json.loads(line)["status"] == 200 for line in lines if line not in torn)
    assert len(lines) >= 3
    assert json.loads(lines[-1])["status"] == 200
    # One line of the log when the loss begins, and one when it ends.
    assert [message.partition(":")[2].split()[0] for message in caplog.messages] == ["lines", "written"]


async def test_an_end_is_reported_once_and_promptly(tmp_path: Path) -> None:
    log, metrics = AccessLog(str(tmp_path / "log")), Metrics()
    telemetry = Telemetry(metrics, log, batch=3)
    one = record(tenant="acme")
    one.ended = 0.0
    telemetry.end(one, None, 200, 12.5)
    telemetry.end(one, TransportError("late"), 502, 13.0)
    assert b'status="200"' not in generate_latest(metrics.registry)
    async with asyncio.timeout(300):
        while b'status="200",tenant="acme"} 1.0' not in generate_latest(metrics.registry):
            await asyncio.sleep(0.005)
    for _ in range(3):  # a full batch does not wait
        another = record(tenant="acme")
        another.ended = 0.0
        telemetry.end(another, None, 200, 12.5)
    assert b'status="200",tenant="acme"} 4.0' in generate_latest(metrics.registry)
    await log.aclose()
    assert [line["status"] for line in parsed(tmp_path / "log")] == [200] * 4


async def test_the_end_waits_for_pending_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    log = AccessLog(str(tmp_path / "log"))
    write_out = log._write_out
    monkeypatch.setattr(access_log, "FLUSH_SECONDS", 0.0)
    monkeypatch.setattr(log, "_write_out", lambda lines: (go_on.wait(10), write_out(lines)))
    log.write(record())
    while log._flushing is not None or log._lines:
        await asyncio.sleep(0)
    log.write(record())  # while the first is with a thread
    closing = asyncio.create_task(log.aclose())
    await asyncio.sleep(0)
    go_on.set()
    await closing
    assert log.dropped == 0
    assert len((tmp_path / "log").read_text().splitlines()) == 2


async def test_into_a_pipe_that_others_write_to_go_whole_lines_only(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe2(os.O_DIRECT)  # each read returns one write
    monkeypatch.setattr(access_log, "STDOUT", writer)
    log = AccessLog("stdout")
    for _ in range(50):
        log.write(record())
    await log.aclose()
    os.close(writer)
    packets = []
    while packet := os.read(reader, 65536):
        packets.append(packet)
    os.close(reader)
    assert len(packets) > 1
    assert all(packet.startswith(b"{") and packet.endswith(b"}\n") for packet in packets)
    assert sum(len(packet.splitlines()) for packet in packets) == 50
