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
        if coding in _ZLIB_BITS:
            return _inflate(body, coding, limit)
        if coding == "zstd" and zstandard is not None:
            return _unzstd(body, limit)
        if coding == "br" and brotli is not None:
            return _unbrotli(body, limit)
    except (zlib.error, _ZSTD_ERROR, _BROTLI_ERROR):
        raise CallerError(f"The body is not valid {coding}.", code="invalid_encoding") from None
    raise CallerError(
        f"The content-encoding `{coding[:32]}` is not supported. Send one of: {SUPPORTED}.",
        code="unsupported_media_type",
    )


_BROTLI_ERROR: type[Exception] = brotli.error if brotli is not None else zlib.error
_ZSTD_ERROR: type[Exception] = zstandard.ZstdError if zstandard is not None else zlib.error


class Inflater:
    """Decompresses gzip or deflate in pieces; some senders omit the header of deflate. Raises `zlib.error`."""

    def __init__(self, coding: str) -> None:
        """Raises `KeyError` for another coding."""
        self._bits = _ZLIB_BITS[coding.strip().lower()]
        self._inflater: Any = None
        self._held = b""
        self._fed = self._made = 0

    def feed(self, piece: bytes, limit: int | None = None) -> bytes:
        """Decompress a piece. Raises `TooLarge` above `limit` bytes, by default what only a bomb exceeds."""
        if self._inflater is None:
            piece = self._held + piece
            if len(piece) < 2:
                self._held = piece
                return b""
            is_bare = self._bits == 15 and (piece[0] & 15 != 8 or int.from_bytes(piece[:2], "big") % 31)
            self._inflater = zlib.decompressobj(-15 if is_bare else self._bits)
        self._fed += len(piece)
        left = FREE_BYTES + MAX_RATIO * self._fed - self._made if limit is None else limit
        out: bytes = self._inflater.decompress(piece, min(left + 1, sys.maxsize))
        if len(out) > left:
            raise _too_large(left)
        self._made += len(out)
        return out

    def finish(self) -> None:
        """Check that the data is complete, and that nothing follows it."""
        if self._inflater is None or not self._inflater.eof or self._inflater.unused_data:
            raise zlib.error("it ends too early or too late")


def _inflate(body: bytes, coding: str, limit: int) -> bytes:
    inflater = Inflater(coding)
    out = inflater.feed(body, limit)
    inflater.finish()
    return out


def _unzstd(body: bytes, limit: int) -> bytes:
    """Decompress zstd in slices of at most a few megabytes: the decoder itself has no bound."""
    inflater = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
    pieces: list[bytes] = []
    size = fed = 0
    while fed < len(body) and not inflater.eof:
        pieces.append(inflater.decompress(body[fed : fed + _SLICE]))
        fed += _SLICE
        size += len(pieces[-1])
        if size > limit:
            raise _too_large(limit)
    if not inflater.eof or fed < len(body) or inflater.unused_data:
        raise _ZSTD_ERROR("it ends too early or too late")
    return b"".join(pieces)


def _unbrotli(body: bytes, limit: int) -> bytes:
    inflater = brotli.Decompressor()
    out: bytes = inflater.process(body, output_buffer_limit=limit + 1)
    if len(out) > limit:
        raise _too_large(limit)
    if not inflater.is_finished():
        raise _BROTLI_ERROR("it ends too early or too late")
    return out


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
