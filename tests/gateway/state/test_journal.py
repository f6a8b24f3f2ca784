"""Journals: the records of a file that is cut, damaged, full, or left by a process that is killed at any write."""

import mmap
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.state import journal as journals_module
from gateway.state.journal import (
    MAGIC,
    Journal,
    JournalFull,
    framed,
    journals,
    left_files,
    payloads,
    records_of,
)

texts = st.lists(st.binary(min_size=1, max_size=40), max_size=5)


def written(folder: Path, records: list[bytes]) -> tuple[Path, list[int]]:
    """A closed journal, and the offsets behind its records."""
    journal = Journal(folder)
    ends = []
    for record in records:
        journal.append(record)
        ends.append(journal.size)
    journal.close()
    return journal.path, ends


def read(path: Path) -> list[bytes]:
    return [payload for _, payload in records_of(path)]


@settings(max_examples=10)
@given(texts, st.integers(1, 255))
def test_a_file_that_is_cut_or_damaged_at_any_byte_has_the_records_before(
    tmp_path_factory: pytest.TempPathFactory, records: list[bytes], flipped: int
) -> None:
    path, ends = written(tmp_path_factory.mktemp("journal"), records)
    data = path.read_bytes()
    assert list(records_of(path)) == list(zip(ends, records, strict=True))
    assert list(payloads(data)) == records
    for at in range(len(data)):
        whole = records[: sum(end <= at for end in ends)]
        assert list(payloads(data[:at])) == whole
        killed = list(payloads(data[:at] + bytes(100)))  # a process that was killed leaves zeros
        assert killed == records[: len(killed)]
        assert len(killed) >= len(whole)
        damaged = data[:at] + bytes([data[at] ^ flipped]) + data[at + 1 :]
        assert list(payloads(damaged)) == (whole if at >= len(MAGIC) else [])


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_read(tmp_path_factory: pytest.TempPathFactory, data: bytes, begins: bool) -> None:
    path = tmp_path_factory.mktemp("journal") / "x"
    path.write_bytes(MAGIC * begins + data)
    assert b"".join(map(framed, read(path))) == data[: sum(len(framed(each)) for each in read(path))]


def test_a_reader_continues_behind_an_offset_and_within_a_size(tmp_path: Path) -> None:
    path, ends = written(tmp_path, [b"a" * 10, b"b" * 10, b"c" * 10])
    assert [payload[:1] for _, payload in records_of(path, ends[0])] == [b"b", b"c"]
    assert [payload[:1] for _, payload in records_of(path, ends[0], 1)] == [b"b"]
    assert list(records_of(path, ends[2])) == []


def test_readers_see_whole_records_at_every_step_of_the_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[list[bytes]]()

    class SlowMap(mmap.mmap):
        def __setitem__(self, place: Any, data: Any) -> None:
            for at, byte in enumerate(data, place.start or 0):
                super().__setitem__(at, byte)
                seen.extend(read(path) for path in tmp_path.glob("*.journal"))

    monkeypatch.setattr(mmap, "mmap", SlowMap)
    journal = Journal(tmp_path)
    for record in (b"one", b"two", b"three"):
        journal.append(record)
    assert all(each == [b"one", b"two", b"three"][: len(each)] for each in seen)
    assert [file.is_final for file in journals(tmp_path)] == [False]
    assert list(left_files(tmp_path)) == []
    journal.close()


def test_a_closed_file_is_taken_once_and_that_of_another_user_never(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, ends = written(tmp_path, [b"one"])
    os.utime(path, (5.0, 5.0))
    assert [(file.path, file.size, file.is_final) for file in journals(tmp_path)] == [(path, ends[0], True)]
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: os.getuid() + 1)
        assert not journals(tmp_path)
        assert not list(left_files(tmp_path))
    [(data, when)] = left_files(tmp_path)
    assert (list(payloads(data)), when) == ([b"one"], 5.0)
    assert not list(left_files(tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_full_file_and_a_full_disk_leave_the_records_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(journals_module, "_CHUNK", 64)
    journal = Journal(tmp_path, largest=200)
    journal.append(b"x" * 100)
    with pytest.raises(JournalFull):
        journal.append(b"y" * 100)
    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", full)
        with pytest.raises(OSError, match="No space"):
            journal.append(b"y" * 70)
        with pytest.raises(OSError, match="No space"):
            Journal(tmp_path)
    journal.append(b"z")
    journal.close()
    assert read(journal.path) == [b"x" * 100, b"z"]
    assert list(tmp_path.iterdir()) == [journal.path]


def test_a_file_that_was_never_named_is_deleted_after_a_while(tmp_path: Path) -> None:
    for name, age in (("new.new", 0), ("old.new", 1000)):
        (tmp_path / name).write_bytes(b"")
        stamp = os.stat(tmp_path / name).st_mtime - age
        os.utime(tmp_path / name, (stamp, stamp))
    assert not journals(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["new.new"]


KILLED = """
import mmap, os, signal, sys
from pathlib import Path
from gateway.state import journal as journal_module
from gateway.state.journal import Journal

folder, records = Path(sys.argv[1]), sys.argv[2:]
for writes in range(2 * len(records) + 1):
    for share in (0, 1, 2):
        if (child := os.fork()) == 0:
            left = writes

            class KillingMap(mmap.mmap):
                def __setitem__(self, place, data):
                    global left
                    if left == 0:
                        begin, size = place.start or 0, len(data) * share // 2
                        super().__setitem__(slice(begin, begin + size), data[:size])
                        os.kill(os.getpid(), signal.SIGKILL)
                    left -= 1
                    super().__setitem__(place, data)

            journal_module.mmap.mmap = KillingMap
            journal = Journal(folder / f"{writes}-{share}")
            for record in records:
                journal.append(record.encode())
            os._exit(0)
        os.waitpid(child, 0)
"""


@pytest.mark.processes
def test_a_process_that_is_killed_at_any_write_leaves_its_records(tmp_path: Path) -> None:
    records = ["one", "two" * 50, "three"]
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), *records], check=True)
    for writes in range(2 * len(records) + 1):
        for share in (0, 1, 2):
            folder = tmp_path / f"{writes}-{share}"
            expected = [record.encode() for record in records[: max(0, writes - 1 + (share == 2)) // 2]]
            left = [list(payloads(data)) for data, _ in left_files(folder)]
            assert left == ([expected] if writes else []), (writes, share)
            assert len(list(folder.iterdir())) == (not writes), "only a file without a name is left"
