"""How many values a JSON text may have."""

from __future__ import annotations

from typing import Final

MANY: Final = 10_000
"""Values from which a decoder that makes an object of each takes long. They take about 5 ms."""
_PIECE: Final = 64 * 1024
_BEFORE_VALUES: Final = b",[{"


def has_many_values(body: bytes | memoryview) -> bool:
    """Whether there may be more than `MANY`: a comma or a bracket comes before each value but the first.

    Those within strings count too: a long text with many commas is a false alarm, and a picture in base64 is not.
    """
    count = 0
    for at in range(0, len(body), _PIECE):
        piece = bytes(body[at : at + _PIECE])
        count += len(piece) - len(piece.translate(None, _BEFORE_VALUES))
        if count > MANY:
            return True
    return False
