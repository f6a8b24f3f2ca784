"""Counts the parts of a JPEG, PNG or WebP file that cost a decoder time. Nothing is decoded."""

import re
from collections.abc import Iterator
from typing import NamedTuple

MAX_PARTS = 16_384
"""Segments or chunks. PNG files of usual encoders have one for each 8 KiB."""
_JPEG, _PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"
_MARKER = re.compile(rb"\xff([\xc0-\xcf\xd9-\xfe])")
"""Markers of segments, and of the end. Others are data of a scan, or have no segment."""
_EOI, _SOS, _COM = 0xD9, 0xDA, 0xFE
_NO_FRAME = (0xC4, 0xC8, 0xCC)
"""Markers between those of frames that are none: Huffman tables, reserved, arithmetic coding."""
_PIXELS = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"fdAT", b"IEND", b"VP8 ", b"VP8L", b"VP8X", b"ALPH", b"ANMF")
_COMPRESSED = (b"zTXt", b"iTXt", b"iCCP")


class PictureParts(NamedTuple):
    """The parts of one file, at least as many as a decoder finds; after `MAX_PARTS` no more are counted."""

    width: int = 0
    height: int = 0
    scans: int = 1
    """Passes over all pixels of a JPEG."""
    frames: int = 1
    metadata: int = 0
    """Bytes of colour profiles, EXIF, XMP, texts and other parts without pixels, as they are in the file."""
    compressed: int = 0
    """Colour profiles and texts that are compressed on their own."""
    parts: int = 0
    """Segments or chunks, and bytes of a JPEG before its first scan that are in none."""


def parts_of(file: bytes) -> PictureParts:
    """The parts of a file; none of a file of another kind."""
    if file.startswith(_JPEG):
        return _of_jpeg(file)
    if file.startswith(_PNG):
        return _of_chunks(file, _png_chunks(file))
    if file.startswith(b"RIFF") and file[8:12] == b"WEBP":
        return _of_chunks(file, _webp_chunks(file))
    return PictureParts()


def _of_jpeg(file: bytes) -> PictureParts:
    """The parts up to the first end: libjpeg reads no further. (ITU T.81, B.1.1)"""
    width = height = scans = metadata = parts = 0
    at = 2
    while parts <= MAX_PARTS:
        match = _MARKER.search(file, at)
        if not scans:  # Pillow skips each of these bytes on its own
            parts += (len(file) if match is None else match.start()) - at
        if match is None or match[1][0] == _EOI:
            break
        marker, at = match[1][0], match.end()
        parts += 1
        length = int.from_bytes(file[at : at + 2], "big")
        if marker == _SOS:
            scans += 1
        elif marker < _EOI and marker not in _NO_FRAME:
            height, width = (int.from_bytes(file[at + i : at + i + 2], "big") for i in (3, 5))
        elif 0xE0 <= marker <= 0xEF or marker == _COM:
            metadata += length
        at = min(at + length, len(file))
    return PictureParts(width, height, scans, 1, metadata, 0, parts)


def _png_chunks(file: bytes) -> Iterator[tuple[bytes, int, int]]:
    """The kind, the place and the length of each chunk. (https://www.w3.org/TR/png-3/#5Chunk-layout)"""
    at = len(_PNG)
    while at + 8 <= len(file):
        length, kind = int.from_bytes(file[at : at + 4], "big"), file[at + 4 : at + 8]
        yield kind, at + 8, length
        if kind == b"IEND":
            return
        at += 12 + length


def _webp_chunks(file: bytes) -> Iterator[tuple[bytes, int, int]]:
    """The same of a WebP file. (RFC 9649, 2.3)"""
    at = 12
    while at + 8 <= len(file):
        kind, length = file[at : at + 4], int.from_bytes(file[at + 4 : at + 8], "little")
        yield kind, at + 8, length
        at += 8 + length + length % 2


def _of_chunks(file: bytes, chunks: Iterator[tuple[bytes, int, int]]) -> PictureParts:
    width = height = frames = metadata = compressed = parts = 0
    for kind, at, length in chunks:
        parts += 1
        if parts > MAX_PARTS:
            break
        if not width:
            width, height = _size(kind, file[at : at + 10])
        frames += kind in (b"fcTL", b"ANMF")
        compressed += kind in _COMPRESSED
        metadata += 0 if kind in _PIXELS else length
    return PictureParts(width, height, 1, max(frames, 1), metadata, compressed, parts)


def _size(kind: bytes, head: bytes) -> tuple[int, int]:
    """The width and the height in a chunk that has them; otherwise 0."""
    if kind == b"IHDR":
        return int.from_bytes(head[:4], "big"), int.from_bytes(head[4:8], "big")
    if kind == b"VP8X":
        return int.from_bytes(head[4:7], "little") + 1, int.from_bytes(head[7:10], "little") + 1
    if kind == b"VP8 ":
        return int.from_bytes(head[6:8], "little") & 0x3FFF, int.from_bytes(head[8:10], "little") & 0x3FFF
    if kind == b"VP8L":
        bits = int.from_bytes(head[1:5], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return 0, 0
