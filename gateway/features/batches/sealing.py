"""Lines of results with personal data: sealed where they are stored, and opened for the client that reads its file.

A sealed line is JSON as well: ``{"sealed":"…","bytes":N,"custom_id":"…"}``, with the size of the line that the client
receives.
"""

import binascii
import zlib
from collections.abc import Callable

import msgspec

from gateway.auth.pepper import BrokenSeal, Seal, previous_of

BEGIN = b'{"sealed":'
"""How a sealed line begins. No other line of a result does."""
_PURPOSE = "results of batches"


class _SealedLine(msgspec.Struct):
    sealed: bytes
    bytes: int
    custom_id: str | None = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_SealedLine).decode


class LineSeals:
    """Seals lines under the pepper. `pepper` is called with each line."""

    def __init__(self, pepper: Callable[[], bytes]) -> None:
        self._pepper = pepper

    def closed(self, tenant: str, file: str, custom_id: str | None, line: bytes) -> bytes:
        """A line of a file as it is stored. It opens in no other file, and for no other tenant."""
        data = Seal(self._pepper(), _PURPOSE).close(zlib.compress(line, 1), _context(tenant, file))
        return _encode(_SealedLine(data, len(line), custom_id))

    def opened(self, tenant: str, file: str, line: bytes) -> bytes:
        """The line that the client receives. Raises `BrokenSeal`."""
        if not line.startswith(BEGIN):
            return line
        try:
            sealed = _decode(line).sealed
        except (msgspec.DecodeError, binascii.Error) as error:
            raise BrokenSeal from error
        pepper = self._pepper()
        for each in (pepper, previous_of(pepper)):
            if each is not None:
                try:
                    return zlib.decompress(Seal(each, _PURPOSE).open(sealed, _context(tenant, file)))
                except BrokenSeal:
                    continue
        raise BrokenSeal

    def opened_lines(self, tenant: str, file: str, lines: bytes) -> bytes:
        """Whole lines as the client receives them. Raises `BrokenSeal`."""
        return b"\n".join([self.opened(tenant, file, line) for line in lines.split(b"\n")])


def size_of(line: bytes) -> int:
    """The bytes of a stored line that the client receives."""
    return _decode(line).bytes if line.startswith(BEGIN) else len(line)


def _context(tenant: str, file: str) -> bytes:
    return f"{tenant}\0{file}".encode()
