"""Segments: whole after a crash at any byte, unreadable with another key, never altered unnoticed."""

import resource
import signal
from pathlib import Path

import pytest

from gateway.features.recording.segments import (
    CONTENTS,
    END,
    ENTRIES,
    POLICY,
    RecordError,
    RecordKey,
    SegmentFrame,
    SegmentReader,
    SegmentWriter,
    key_path,
    new_path,
    rewrap,
    segments,
    sweep,
)

KEY = RecordKey("a long enough secret")
OTHER = RecordKey("another long secret!")
FRAMES = [
    SegmentFrame(POLICY, b"policy"),
    SegmentFrame(CONTENTS, b"content " * 20),
    SegmentFrame(ENTRIES, b"entry"),
    SegmentFrame(ENTRIES, b""),
]


def written(folder: Path, frames: list[SegmentFrame] = FRAMES, *, close: bool = True) -> Path:
    writer = SegmentWriter(new_path(folder, 0.0), KEY)
    for frame in frames:
        writer.write(*frame)
    if close:
        writer.close()
    else:
        writer._close()
    return writer.path


def read(path: Path, key: RecordKey = KEY) -> tuple[list[SegmentFrame], SegmentReader]:
    reader = SegmentReader(path, key)
    return list(reader.frames()), reader


def test_written_frames_are_read(tmp_path: Path) -> None:
    frames, reader = read(path := written(tmp_path))
    assert frames == FRAMES
    assert reader.is_closed
    assert reader.torn == 0
    data = path.read_bytes()
    assert b"content" not in data
    assert b"policy" not in data
    assert path.stat().st_mode & 0o777 == key_path(path).stat().st_mode & 0o777 == 0o600


def test_a_crash_at_any_byte_leaves_the_whole_frames(tmp_path: Path) -> None:
    path = written(tmp_path)
    data = path.read_bytes()
    seen = set()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        frames, reader = read(path)
        assert frames == FRAMES[: len(frames)]
        assert not reader.is_closed
        seen.add(len(frames))
    assert seen == set(range(len(FRAMES) + 1))


def test_zeros_after_a_crash_of_the_machine_are_torn(tmp_path: Path) -> None:
    path = written(tmp_path, close=False)
    path.write_bytes(path.read_bytes() + bytes(4096))
    frames, reader = read(path)
    assert frames == FRAMES
    assert reader.torn == 4096


def test_each_altered_byte_is_noticed(tmp_path: Path) -> None:
    path = written(tmp_path)
    data = path.read_bytes()
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        try:
            frames, reader = read(path)
        except RecordError:
            continue
        # Only a longer length can look like a torn frame; nothing that is read then differs.
        assert not reader.is_closed
        assert reader.torn
        assert frames == FRAMES[: len(frames)]


def test_frames_cannot_be_moved_left_out_or_repeated(tmp_path: Path) -> None:
    first, second = written(tmp_path), written(tmp_path)
    magic, frames = 18, first.read_bytes()[18:]
    size = 5 + int.from_bytes(frames[1:5], "little")
    for forged in (frames[size:], frames[:size] * 2, second.read_bytes()[magic:]):
        first.write_bytes(second.read_bytes()[:magic] + forged)
        with pytest.raises(RecordError, match="altered"):
            read(first)


def test_another_key_reads_nothing(tmp_path: Path) -> None:
    path = written(tmp_path)
    with pytest.raises(RecordError, match="another key"):
        read(path, OTHER)
    altered = bytearray(key_path(path).read_bytes())
    altered[-12] ^= 1
    key_path(path).write_bytes(bytes(altered))
    with pytest.raises(RecordError, match=r"altered|not a key file"):
        read(path)
    key_path(path).unlink()
    with pytest.raises(RecordError, match="deleted"):
        read(path)


def test_a_short_key_is_refused() -> None:
    with pytest.raises(RecordError, match="16"):
        RecordKey("short")


def test_the_key_can_be_rotated(tmp_path: Path) -> None:
    path = written(tmp_path)
    rewrap(path, KEY, OTHER)
    rewrap(path, KEY, OTHER)  # a second time changes nothing
    assert read(path, OTHER)[0] == FRAMES
    with pytest.raises(RecordError, match="another key"):
        read(path, KEY)


def test_a_full_disk_leaves_whole_frames(tmp_path: Path) -> None:
    writer = SegmentWriter(new_path(tmp_path, 0.0), KEY)
    writer.write(ENTRIES, b"first")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (writer.size + 20, before[1]))
    try:
        with pytest.raises(OSError, match="large"):
            writer.write(ENTRIES, bytes(range(256)) * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    writer.write(ENTRIES, b"second")
    writer.close()
    frames, reader = read(writer.path)
    assert frames == [SegmentFrame(ENTRIES, b"first"), SegmentFrame(ENTRIES, b"second")]
    assert reader.is_closed


def test_skipped_frames_are_not_decrypted(tmp_path: Path) -> None:
    reader = SegmentReader(written(tmp_path), KEY)
    assert [frame.kind for frame in reader.frames(frozenset({CONTENTS}))] == [POLICY, CONTENTS, ENTRIES, ENTRIES]
    assert reader.is_closed
    assert END not in {frame.kind for frame in FRAMES}


# ── retention ─────────────────────────────────────────────────────────────────────────────────────────────


def aged(folder: Path, ages: list[float], now: float) -> list[Path]:
    import os

    paths = []
    for age in ages:
        path = written(folder)
        os.utime(path, (now - age, now - age))
        paths.append(path)
    return paths


def test_old_segments_are_deleted_with_their_keys(tmp_path: Path) -> None:
    old, new = aged(tmp_path, [3700.0, 3500.0], now=1e9)
    assert sweep(tmp_path, keep=3600.0, most=10**9, now=1e9) == 1
    assert segments(tmp_path) == [new]
    assert not key_path(old).exists()
    assert key_path(new).exists()


def test_the_oldest_segments_are_deleted_for_their_size(tmp_path: Path) -> None:
    paths = aged(tmp_path, [500.0, 400.0, 300.0, 10.0], now=1e9)
    size = paths[0].stat().st_size + key_path(paths[0]).stat().st_size
    sweep(tmp_path, keep=3600.0, most=2 * size, now=1e9, own=[paths[0]])
    # An own segment and one that another process may be writing remain.
    assert segments(tmp_path) == sorted([paths[0], paths[3]])


def test_a_key_without_its_segment_is_deleted(tmp_path: Path) -> None:
    import os

    path = written(tmp_path)
    path.unlink()
    os.utime(key_path(path), (1.0, 1.0))
    sweep(tmp_path, keep=3600.0, most=10**9, now=1e9)
    assert list(tmp_path.iterdir()) == []
