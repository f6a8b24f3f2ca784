"""Signed request ids: the arm of a request in its own id, which no client can forge and any process can verify."""

import re
from binascii import a2b_base64, b2a_base64
from collections.abc import Sequence
from hashlib import blake2b
from hmac import compare_digest
from struct import Struct
from typing import NamedTuple

PREFIX = "req_"
_LAYOUT = Struct(">IBBHIQ")
_MAC = 10
"""Bytes of the code. Each try of a forger is a request, so that 80 bits are plenty."""
_SIGNED = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{40}}")
_TO_URL, _FROM_URL = bytes.maketrans(b"+/", b"-_"), bytes.maketrans(b"-_", b"+/")
_PERSON = b"headrace id"
GENERATIONS = 256
MOST_ARMS = 256
MOST_STRATA = 65_536
LARGEST_SUBJECT = 2**64 - 1


class SignedId(NamedTuple):
    """The contents of an id: 20 bytes, and a code of 10 bytes over them, the comparison and the tenant."""

    number: int
    """Of the comparison: `number_of` its name."""
    generation: int
    """Modulo `GENERATIONS`."""
    arm: int
    stratum: int
    at: int
    """Unix seconds of the assignment."""
    subject: int
    """The unit of the comparison: the request itself, a user, a session."""


class IdSigner:
    """Signs and verifies the ids of one comparison. The first secret signs, and each verifies: so secrets rotate.

    The code is a keyed BLAKE2b (RFC 7693, 2.9), truncated by its own parameter.
    """

    __slots__ = ("_signing", "_states", "number")

    def __init__(self, secrets: Sequence[bytes], name: str) -> None:
        """`secrets` have at most 64 bytes each."""
        self.number = number_of(name)
        text = name.encode() + b"\0"
        self._states = [blake2b(text, digest_size=_MAC, key=secret, person=_PERSON) for secret in secrets]
        self._signing = self._states[0]

    def sign(self, id: SignedId, tenant: str) -> str:
        """The id as text: 44 letters, digits, `_` and `-`."""
        payload = _LAYOUT.pack(*id)
        code = self._signing.copy()
        code.update(payload + tenant.encode())
        return PREFIX + b2a_base64(payload + code.digest(), newline=False).translate(_TO_URL).decode()

    def is_valid(self, raw: bytes, tenant: str) -> bool:
        """Whether this comparison signed the bytes of an id for the tenant."""
        payload, valid = raw[: _LAYOUT.size], False
        for state in self._states:
            code = state.copy()
            code.update(payload + tenant.encode())
            valid |= compare_digest(code.digest(), raw[_LAYOUT.size :])
        return valid


def read_id(text: str) -> tuple[SignedId, bytes] | None:
    """The contents of an id, not verified, and its bytes. None for a text of another form.

    30 bytes are 40 characters without padding, so that each id has one text only.
    """
    if _SIGNED.fullmatch(text) is None:
        return None
    raw = a2b_base64(text[len(PREFIX) :].encode().translate(_FROM_URL))
    return SignedId(*_LAYOUT.unpack_from(raw)), raw


def number_of(name: str) -> int:
    """The number of a comparison in ids. Two names may share a number: their codes differ."""
    return int.from_bytes(blake2b(name.encode(), digest_size=4, person=_PERSON).digest(), "big")
