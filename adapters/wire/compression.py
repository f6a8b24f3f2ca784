"""Compression of bodies (RFC 9110 8.4), with a bound on the decompressed size."""

import importlib
import sys
import zlib
from collections.abc import Callable
from typing import Any

from adapters.errors import CallerError, TooLarge

zstandard: Any
try:
    zstandard = importlib.import_module("zstandard")
except ImportError:  # the coding is then unsupported
    zstandard = None

brotli: Any
try:
    brotli = importlib.import_module("brotli")
except ImportError:
    brotli = None

FREE_BYTES = 4 * 1024 * 1024
MAX_RATIO = 256
"""A further limit of the decompressed size: `FREE_BYTES` plus `MAX_RATIO` times the body. Only a bomb exceeds it."""
SMALLEST = 860
"""Bytes of the smallest body that is compressed: a smaller body may grow."""
MAX_MEMBERS = 1000
"""Members of one gzip body. Compressors that work on blocks write a member for each."""
_MEMBER_SLICE = 64 * 1024
_SLICE = 256
_ZLIB_BITS = {"gzip": 31, "x-gzip": 31, "deflate": 15}

SUPPORTED = ", ".join(
    ["gzip", "deflate", *(["zstd"] if zstandard is not None else []), *(["br"] if brotli is not None else [])]
)
"""The `accept-encoding` of a refusal."""


def decompress(body: bytes, coding: str, limit: int) -> bytes:
    """Decompress a body. Raises `TooLarge` over `limit` bytes and `CallerError` for malformed data."""
    coding = coding.strip().lower()
    if coding in ("", "identity"):
        return body
    limit = min(limit, FREE_BYTES + MAX_RATIO * len(body))
    try:
        inflater = Inflater(coding)
    except KeyError:
        raise CallerError(
            f"The content-encoding `{coding[:32]}` is not supported. Send one of: {SUPPORTED}.",
            code="unsupported_media_type",
        ) from None
    try:
        out = inflater.feed(body, limit)
        inflater.finish()
    except MALFORMED:
        raise CallerError(f"The body is not valid {coding}.", code="invalid_encoding") from None
    return out


MALFORMED: tuple[type[Exception], ...] = (
    zlib.error,
    *([zstandard.ZstdError] if zstandard is not None else []),
    *([brotli.error] if brotli is not None else []),
)
"""The errors of data that is not valid in its coding."""


class Inflater:
    """Decompresses one body in pieces."""

    def __init__(self, coding: str) -> None:
        """Raises `KeyError` for a coding that is not supported."""
        coding = coding.strip().lower()
        self._decoder: _Zlib | _Zstd | _Brotli
        if coding == "zstd" and zstandard is not None:
            self._decoder = _Zstd()
        elif coding == "br" and brotli is not None:
            self._decoder = _Brotli()
        else:
            self._decoder = _Zlib(_ZLIB_BITS[coding])
        self._fed = self._made = 0

    def feed(self, piece: bytes, limit: int | None = None) -> bytes:
        """Decompress a piece. Raises an error of `MALFORMED`.

        Raises `TooLarge` above `limit` bytes, by default what only a bomb exceeds.
        """
        self._fed += len(piece)
        left = FREE_BYTES + MAX_RATIO * self._fed - self._made if limit is None else limit
        out = self._decoder.feed(piece, left)
        if len(out) > left:
            raise _too_large(left)
        self._made += len(out)
        return out

    def finish(self) -> None:
        """Check that the data is complete, and that nothing follows it. Raises an error of `MALFORMED`."""
        if not self._decoder.ended:
            raise zlib.error("it ends too early or too late")


class _Zlib:
    """gzip, which may have several members (RFC 1952 2.2), or deflate, whose header some senders omit."""

    def __init__(self, bits: int) -> None:
        self._bits = bits
        self._inflater: Any = None
        self._begin = b""
        self._members = 1

    def feed(self, piece: bytes, left: int) -> bytes:
        """At most `left + 1` bytes of the piece."""
        if self._inflater is None:
            piece = self._begin + piece
            if len(piece) < 2:
                self._begin = piece
                return b""
            is_bare = self._bits == 15 and (piece[0] & 15 != 8 or int.from_bytes(piece[:2], "big") % 31)
            self._inflater = zlib.decompressobj(-15 if is_bare else self._bits)
        out: bytes = self._inflater.decompress(piece, min(left + 1, sys.maxsize))
        if self._bits == 15 or not self._inflater.eof:
            return out
        return self._further([out], left + 1 - len(out))

    def _further(self, parts: list[bytes], room: int) -> bytes:
        """The parts, with those of the members that follow a whole one: as many bytes as there is room for.

        In slices, because zlib copies what follows a member.
        """
        rest: bytes = self._inflater.unused_data
        at = 0
        while room > 0 and at < len(rest):
            if self._inflater.eof:
                self._inflater = zlib.decompressobj(self._bits)
                self._members += 1
            if self._members > MAX_MEMBERS:
                raise zlib.error("it has too many members")
            piece = rest[at : at + _MEMBER_SLICE]
            parts.append(self._inflater.decompress(piece, min(room, sys.maxsize)))
            room -= len(parts[-1])
            at += len(piece) - len(self._inflater.unused_data)
        return b"".join(parts)

    @property
    def ended(self) -> bool:
        return self._inflater is not None and self._inflater.eof and not self._inflater.unused_data


class _Zstd:
    """zstd, in slices of at most a few megabytes: the decoder itself has no bound."""

    def __init__(self) -> None:
        self._inflater = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
        self._follows = False

    def feed(self, piece: bytes, left: int) -> bytes:
        """More than `left` bytes of the piece only by one slice."""
        out: list[bytes] = []
        size = fed = 0
        while fed < len(piece) and not self._inflater.eof and size <= left:
            out.append(self._inflater.decompress(piece[fed : fed + _SLICE]))
            fed += _SLICE
            size += len(out[-1])
        self._follows = self._follows or fed < len(piece)
        return b"".join(out)

    @property
    def ended(self) -> bool:
        return bool(self._inflater.eof and not self._inflater.unused_data and not self._follows)


class _Brotli:
    """Brotli."""

    def __init__(self) -> None:
        self._inflater = brotli.Decompressor()

    def feed(self, piece: bytes, left: int) -> bytes:
        """At most `left + 1` bytes of the piece."""
        out: bytes = self._inflater.process(piece, output_buffer_limit=left + 1)
        return out

    @property
    def ended(self) -> bool:
        return bool(self._inflater.is_finished())


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"The body has more than {limit} bytes when it is decompressed.")


def chosen(accept_encoding: str | None) -> str | None:
    """Return the cheapest coding that a client accepts; None for no compression."""
    if accept_encoding is None:
        return None
    weights: dict[str, float] = {}
    for part in accept_encoding.lower().split(","):
        name, _, parameters = part.partition(";")
        weights[name.strip()] = _weight(parameters)
    every = weights.get("*", 0.0)
    best, most = None, 0.0
    for name in _ENCODERS:
        if (weight := weights.get(name, every)) > most:
            best, most = name, weight
    return best


def _weight(parameters: str) -> float:
    name, _, value = parameters.strip().partition("=")
    if name.strip() != "q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0


def compress(body: bytes, coding: str) -> bytes:
    """Compress with a coding that `chosen` returned."""
    return _ENCODERS[coding](body)


def _gzip(body: bytes) -> bytes:
    encoder = zlib.compressobj(1, zlib.DEFLATED, 31)
    return encoder.compress(body) + encoder.flush()


def _deflate(body: bytes) -> bytes:
    return zlib.compress(body, 1)


def _zstd(body: bytes) -> bytes:
    packed: bytes = zstandard.ZstdCompressor(level=1).compress(body)
    return packed


_ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    **({"zstd": _zstd} if zstandard is not None else {}),
    "gzip": _gzip,
    "deflate": _deflate,
}
