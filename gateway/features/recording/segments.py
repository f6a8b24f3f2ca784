"""Segments: files of encrypted frames.

A segment begins with `MAGIC`. Each frame is a head (kind, length), then its compressed content, encrypted with the
segment's key. The nonce is the number of the frame; the head is authenticated with the content. So a frame cannot be
altered, moved or left out unnoticed. Only the end of a segment may be missing, as after a crash: a segment that was
closed ends with an `END` frame.

Each segment has a random key, which is stored encrypted under the configured key. All encryption is AES-256-GCM. The
configured secret is any text; HKDF-SHA256 derives keys from it, one for each purpose (RFC 5869). A key file is
rewritten alone when the configured key changes, and deleted before its segment.
"""

import hashlib
import os
import secrets
import struct
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from config.schema.telemetry import LEAST_KEY
from gateway.state.private_folder import make_private

NONCE = 12
MAGIC = b"headrace record 1\n"
SUFFIX, KEY_SUFFIX = ".segment", ".key"
POLICY, ENTRIES, CONTENTS, END = range(4)
_HEAD = struct.Struct("<BI")
TAG = 16
_FASTEST = 1
MOST_FRAME = 2**31
"""Most bytes of a frame."""
OPEN_SECONDS = 60.0
"""Seconds after its last write in which a segment may still be written, so that no other process deletes it for its
size."""
OLDEST_SHARE = 16
"""A segment has at most this part of the folder's bound."""


class RecordError(Exception):
    """Records cannot be read. The message is for the operator."""


class KeyFile(msgspec.Struct, frozen=True):
    """The content of a key file."""

    secret: str
    """The id of the configured key."""
    wrapped: bytes
    """Nonce and encrypted key of the segment."""
    version: int = 1


class RecordKey:
    """The keys that are derived from the configured secret."""

    def __init__(self, secret: str) -> None:
        """Raises `RecordError` for a secret that is too short."""
        if len(secret) < LEAST_KEY:
            raise RecordError(f"the key of records has at least {LEAST_KEY} characters")
        self._secret = secret.encode()
        self.id = self.derived("id", 8).hex()
        self._wrapping = AESGCM(self.derived("wrapping"))

    def derived(self, purpose: str, length: int = 32) -> bytes:
        """A key for one purpose, from which no other key can be computed."""
        return HKDF(SHA256(), length, salt=None, info=f"headrace record {purpose}".encode()).derive(self._secret)

    def wrap(self, segment: str, key: bytes) -> KeyFile:
        """Encrypt the key of a segment."""
        nonce = os.urandom(NONCE)
        return KeyFile(self.id, nonce + self._wrapping.encrypt(nonce, key, segment.encode()))

    def unwrap(self, segment: str, stored: KeyFile) -> bytes:
        """Decrypt the key of a segment. Raises `RecordError`."""
        if stored.secret != self.id:
            raise RecordError(f"{segment}: was recorded with another key ({stored.secret}; this one is {self.id})")
        try:
            return self._wrapping.decrypt(stored.wrapped[:NONCE], stored.wrapped[NONCE:], segment.encode())
        except InvalidTag:
            raise RecordError(f"{segment}: its key file is altered") from None


def read_key_file(path: Path) -> KeyFile:
    """Raises `RecordError`."""
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=KeyFile)
    except FileNotFoundError:
        raise RecordError(f"{path.name}: the key of the segment is deleted") from None
    except (OSError, msgspec.MsgspecError) as error:
        raise RecordError(f"{path}: is not a key file: {error}") from None


def write_key_file(path: Path, stored: KeyFile) -> None:
    """Write a key file whole, or not at all. Raises `OSError`."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(msgspec.msgpack.encode(stored))
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def keyed_digest(key: bytes, text: str, size: int = 8) -> bytes:
    """A digest of a text that cannot be computed without the key."""
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=size, key=key).digest()


class SegmentFrame(NamedTuple):
    """One frame. `content` is empty for a kind that the reader skips."""

    kind: int
    content: bytes


def key_path(segment: Path) -> Path:
    """The key file of a segment."""
    return segment.with_suffix(KEY_SUFFIX)


class SegmentWriter:
    """Appends frames to a new segment. Raises `OSError`; the file then ends with its last whole frame."""

    def __init__(self, path: Path, key: RecordKey) -> None:
        self.path = path
        self.size = 0
        secret = os.urandom(32)
        self._cipher = AESGCM(secret)
        self._number = 0
        write_key_file(key_path(path), key.wrap(path.stem, secret))
        self._fd = -1
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            self._append(MAGIC)
        except BaseException:
            self._close()
            remove_segment(path)
            raise

    def write(self, kind: int, content: bytes) -> None:
        """Append a frame. After an error no part of it remains in the file."""
        packed = zlib.compress(content, _FASTEST)
        head = _HEAD.pack(kind, len(packed) + TAG)
        self._append(head + self._cipher.encrypt(_nonce(self._number), packed, head))
        self._number += 1

    def _append(self, data: bytes) -> None:
        written = 0
        try:
            while written < len(data):
                written += os.write(self._fd, memoryview(data)[written:])
        except OSError:
            if written:
                os.ftruncate(self._fd, self.size)
                os.lseek(self._fd, self.size, os.SEEK_SET)
            raise
        self.size += written

    def close(self) -> None:
        """Mark the end, and close the file."""
        try:
            if self._fd >= 0:
                self.write(END, b"")
        finally:
            self._close()

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class SegmentReader:
    """Reads the frames of a segment in order, up to a torn frame."""

    def __init__(self, path: Path, key: RecordKey) -> None:
        """Raises `RecordError`."""
        self.path = path
        self.is_closed = False
        """Whether the end was read: the segment is whole."""
        self.torn = 0
        """Bytes after the last whole frame."""
        self._cipher = AESGCM(key.unwrap(path.stem, read_key_file(key_path(path))))

    def frames(self, skip: frozenset[int] = frozenset()) -> Iterator[SegmentFrame]:
        """Raises `RecordError` for an altered frame."""
        try:
            with self.path.open("rb") as file:
                yield from self._frames(file, os.fstat(file.fileno()).st_size, skip)
        except OSError as error:
            raise RecordError(f"{self.path}: {error.strerror}") from None

    def _frames(self, file: IO[bytes], size: int, skip: frozenset[int]) -> Iterator[SegmentFrame]:
        magic = file.read(len(MAGIC))
        if magic != MAGIC:
            if MAGIC.startswith(magic):
                self.torn = len(magic)
                return
            raise RecordError(f"{self.path.name}: is not a segment of records")
        at, number = len(MAGIC), 0
        while len(head := file.read(_HEAD.size)) == _HEAD.size:
            kind, length = _HEAD.unpack(head)
            if at + _HEAD.size + length > size or length < TAG:
                break
            if kind in skip:
                file.seek(length, os.SEEK_CUR)
                yield SegmentFrame(kind, b"")
            else:
                content = self._opened(number, head, file.read(length), at)
                if kind == END:
                    self.is_closed = True
                    return
                yield SegmentFrame(kind, content)
            at, number = at + _HEAD.size + length, number + 1
        self.torn = size - at

    def _opened(self, number: int, head: bytes, data: bytes, at: int) -> bytes:
        try:
            return zlib.decompress(self._cipher.decrypt(_nonce(number), data, head))
        except (InvalidTag, zlib.error):
            raise RecordError(f"{self.path.name}: the frame at byte {at} is altered") from None


def rewrap(segment: Path, old: RecordKey, new: RecordKey) -> None:
    """Encrypt the key of a segment under another configured key. Raises `RecordError` and `OSError`."""
    path = key_path(segment)
    stored: KeyFile = read_key_file(path)
    if stored.secret != new.id:
        write_key_file(path, new.wrap(segment.stem, old.unwrap(segment.stem, stored)))


def remove_segment(segment: Path) -> None:
    """Delete a segment, its key first: the rest of the segment cannot be read. Raises `OSError`."""
    key_path(segment).unlink(missing_ok=True)
    segment.unlink(missing_ok=True)


def _nonce(number: int) -> bytes:
    return number.to_bytes(NONCE, "big")


def new_path(folder: Path, now: float) -> Path:
    """The path of a new segment. Names sort by time. Raises `OSError`."""
    make_private(folder)
    return folder / f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(now))}-{secrets.token_hex(6)}{SUFFIX}"


def segments(folder: Path) -> list[Path]:
    """The segments in the order of their start."""
    return sorted(folder.glob(f"*{SUFFIX}"))


def sweep(folder: Path, keep: float, most: int, now: float, own: Iterable[Path] = ()) -> int:
    """Delete segments that are too old, then the oldest ones until the folder has at most `most` bytes.

    `own` are open segments of this process. Returns the number of deleted segments. Raises `OSError`.
    """
    own, deleted = set(own), 0
    files = sorted(_states(folder), key=lambda entry: entry[1])
    total = sum(size for _, _, size in files)
    for path, written, size in files:
        too_old = now - written > keep
        too_much = total > most and now - written > OPEN_SECONDS
        if path not in own and (too_old or too_much):
            remove_segment(path)
            total -= size
            deleted += 1
    for key in folder.glob(f"*{KEY_SUFFIX}"):
        if not key.with_suffix(SUFFIX).exists() and _age(key, now) > OPEN_SECONDS:
            key.unlink(missing_ok=True)
    return deleted


def _states(folder: Path) -> Iterator[tuple[Path, float, int]]:
    """Path, time of the last write, and bytes with the key file, of each segment."""
    for path in segments(folder):
        try:
            state = path.stat()
            yield path, state.st_mtime, state.st_size + key_path(path).stat().st_size
        except FileNotFoundError:  # another process has deleted the key, or the segment
            if path.exists():
                yield path, 0.0, 0


def _age(path: Path, now: float) -> float:
    try:
        return now - os.stat(path).st_mtime
    except FileNotFoundError:
        return 0.0
