"""Decompresses responses: some servers and proxies compress although the client asks for no coding."""

import zlib

from adapters.errors import TooLarge
from adapters.http1.message import Headers
from adapters.wire import decoding
from adapters.wire.compression import Inflater


class BodyDecoder:
    """Decodes the pieces of one response with the `content-encoding` of its head."""

    __slots__ = ("_coding", "_inflater", "_started")

    def __init__(self, coding: str) -> None:
        self._coding = coding
        self._started = False
        try:
            self._inflater: Inflater | None = Inflater(coding)
        except KeyError:
            self._inflater = None

    def decode(self, piece: bytes) -> bytes:
        """Return the decoded bytes of a piece, which may be none; an empty piece is the end. Raises `BackendError`."""
        self._started = self._started or bool(piece)
        if not self._started:
            return b""  # the response has no body
        if self._inflater is None:
            raise decoding.bad_response(f"The upstream's response has the content-encoding `{self._coding[:32]}`.")
        try:
            if piece:
                return self._inflater.feed(piece)
            self._inflater.finish()
        except (zlib.error, TooLarge):
            raise decoding.bad_response(f"The upstream's response is not valid {self._coding[:32]}.") from None
        return b""


def decoder_of(headers: Headers) -> BodyDecoder | None:
    """The decoder of a response; None if it is not encoded. The headers lose what describes the encoded body."""
    coded = headers.raw.pop(b"content-encoding", None)
    if coded is None or (coding := coded.decode("latin-1").strip().lower()) in ("", "identity"):
        return None
    headers.raw.pop(b"content-length", None)
    return BodyDecoder(coding)
