"""Estimates the number of values in a JSON text."""

from __future__ import annotations

from typing import Final

MANY: Final = 10_000
"""Values that take a decoder about 5 ms if it creates an object for each."""
_PIECE: Final = 64 * 1024
_BEFORE_VALUES: Final = b",[{"


def has_many_values(body: bytes | memoryview) -> bool:
    """Whether a text may have more than `MANY` values: a comma or a bracket precedes each value but the first.

    Those within strings count too: a long text with many commas is a false positive, an image in base64 is not.
    """
    count = 0
    for at in range(0, len(body), _PIECE):
        piece = bytes(body[at : at + _PIECE])
        count += len(piece) - len(piece.translate(None, _BEFORE_VALUES))
        if count > MANY:
            return True
    return False
