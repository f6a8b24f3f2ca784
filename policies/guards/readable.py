"""Texts that every encoding takes.

A file or a tensor that is no UTF-8 is examined too: each byte that is wrong there is a lone surrogate in its text, as
with the error handler ``surrogateescape``.
"""

_LETTERS = dict.fromkeys(range(0xD800, 0xE000), "\ufffd") | {
    0xDC00 + byte: bytes([byte]).decode("cp1252", "replace") for byte in range(0x80, 0x100)
}


def readable(text: str) -> str:
    """A text without lone surrogates, in which each character has its old place.

    Those of bytes become the letters of Windows-1252, which has those of Latin-1. All others become U+FFFD.
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.translate(_LETTERS)
    return text
