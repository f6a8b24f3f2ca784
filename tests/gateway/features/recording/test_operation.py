"""A recorder in operation: retention, a full disk, and reloads between requests."""

import os
import resource
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from adapters.fake import FakeAdapter
from gateway.features.recording import recorder as module
from gateway.features.recording import segments
from gateway.features.recording.contents import AnswerPart, ResendSource, Settings, redacted
from gateway.features.recording.policy import RecordedPolicy
from gateway.features.recording.segments import RecordError, key_path
from tests.support.gateways import chat, config
from tests.support.recorded import RecordingRig, recorder_of, recorder_rig, recording, records
from tests.support.waiting import until


async def test_a_segment_without_its_deleted_key_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SWEEP_SECONDS", 0.0)
    monkeypatch.setattr(module, "FLUSH_SECONDS", 0.02)
    where, backup = tmp_path / "traffic", tmp_path / "backup"
    one = recorder_rig(where, keep="1h")
    async with recorder_of(one):
        await one.send(chat(messages=[{"role": "user", "content": "of last week"}]))
        await until(lambda: one.recorder.written["records"] == 1)
        one.recorder.configure(one.core.snapshot.config)  # ends the segment
        await one.send(chat())
        await until(lambda: one.recorder.written["records"] == 2)
        (old, new) = segments.segments(where)
        if b"of last week" not in contents(old):
            old, new = new, old
        shutil.copytree(where, backup)
        long_ago = old.stat().st_mtime - 3601
        os.utime(old, (long_ago, long_ago))
        await until(lambda: segments.segments(where) == [new])
        assert not key_path(old).exists()
        assert key_path(new).exists()
        await one.send(chat())
    assert len(records(where)) == 2
    assert len(records(backup)) == 2
    key_path(backup / old.name).unlink()
    with pytest.raises(RecordError, match="the key of the segment is deleted"):
        records(backup)


def contents(path: Path) -> bytes:
    """The bodies of one segment."""
    requests = records(path.parent, contents=True)
    assert len(requests) == 2
    single = path.parent.parent / f"{path.stem}-alone"
    single.mkdir()
    for each in (path, key_path(path)):
        shutil.copy(each, single)
    return b"".join(request.content.body for request in records(single, contents=True) if request.content)


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file of this process can have more bytes: writes fail as on a full disk, perhaps in the middle of a frame."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


@pytest.mark.parametrize("room", [0, 3, 40])
async def test_a_full_disk_loses_records_and_no_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    monkeypatch.setattr(module, "FLUSH_SECONDS", 0.02)
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.0)
    one = recorder_rig(tmp_path)
    async with recorder_of(one):
        await one.send(chat())
        await until(lambda: one.recorder.written["records"] == 1)
        (first,) = segments.segments(tmp_path)
        with largest_file(first.stat().st_size + room):
            for number in range(1, 4):
                words = os.urandom(2000).hex()  # does not compress
                sent = await one.send(chat(messages=[{"role": "user", "content": words}]))
                assert sent.status == 200
                await until(lambda number=number: one.recorder.lost["disk"] == number)
        await one.send(chat())
        await until(lambda: one.recorder.written["records"] == 2)
    assert {request.entry.id for request in records(tmp_path)} == {"req-1", "req-5"}
    one.assert_idle()


async def test_each_record_is_written_once_across_reloads(tmp_path: Path) -> None:
    pools = [{"name": name, "endpoints": ["http://127.0.0.1:9"]} for name in ("main", "spare")]
    policies = [
        config(record=recording(tmp_path), pools=pools, models=[{"name": "chat", "routes": [{"to": to}]}])
        for to in ("main", "spare")
    ]
    one = RecordingRig(policies[0], {"main": [FakeAdapter()], "spare": [FakeAdapter()]})
    async with recorder_of(one):
        for number in range(60):
            await one.send(chat())
            if number % 7 == 0:
                one.recorder.configure(policies[number % 2])
    written = records(tmp_path)
    numbers = sorted(int(request.entry.id.removeprefix("req-")) for request in written)
    assert numbers == list(range(1, 61))
    assert one.recorder.lost.total() == 0
    # Every request was routed to `main`. One that is recorded under the other policy is marked, so that a replay takes
    # its decision from the record.
    to_main = RecordedPolicy(policies[0]).digests
    assert all(request.entry.reproduces == (request.policy.digests == to_main) for request in written)
    assert {request.entry.reproduces for request in written} == {True, False}


@pytest.mark.parametrize("kind", ["application/x-ndjson", "application/octet-stream"])
def test_a_stream_without_events_is_not_recorded(kind: str) -> None:
    answer = AnswerPart(b'{"t": "sk-abcdefgh"}\n{"t": "ijklmnop1234"}\n', kind, is_stream=True)
    content = redacted(ResendSource("/apps/a/run", "POST", kind), answer, Settings((), b"k" * 16, digest_only=False))
    assert (content.answer, content.truncated, content.streamed) == (None, True, True)
