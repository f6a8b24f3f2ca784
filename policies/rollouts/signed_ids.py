"""Signed request ids: the arm of a request in its own id, which no client can forge and any process can verify."""

import re
from binascii import a2b_base64, b2a_base64
from collections.abc import Sequence
from hashlib import blake2b
from hmac import compare_digest
from struct import Struct
from typing import NamedTuple

PREFIX = "req_"
_HEAD, _TAIL, _LAYOUT = Struct(">IBBH"), Struct(">IQ"), Struct(">IBBHIQ")
_MAC = 10
"""Bytes of the code. Each try of a forger is a request, so that 80 bits are plenty."""
_SIGNED = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{40}}")
_TO_URL, _FROM_URL = bytes.maketrans(b"+/", b"-_"), bytes.maketrans(b"-_", b"+/")
_PERSON = b"headrace id"
_MOST_TENANTS = 4096
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

    __slots__ = ("_states", "_tenants", "number")

    def __init__(self, secrets: Sequence[bytes], name: str) -> None:
        """`secrets` have at most 64 bytes each."""
        self.number = number_of(name)
        text = name.encode() + b"\0"
        self._states = [blake2b(text, digest_size=_MAC, key=secret, person=_PERSON) for secret in secrets]
        self._tenants: dict[str, list[blake2b]] = {}

    def head(self, generation: int, arm: int, stratum: int) -> bytes:
        """The first bytes of an id, which are the same for all requests of an arm."""
        return _HEAD.pack(self.number, generation % GENERATIONS, arm, stratum)

    def sign(self, head: bytes, at: int, subject: int, tenant: str) -> str:
        """The id as text: 44 letters, digits, `_` and `-`."""
        payload = head + _TAIL.pack(at, subject)
        code = (self._tenants.get(tenant) or self._of(tenant))[0].copy()
        code.update(payload)
        return PREFIX + b2a_base64(payload + code.digest(), newline=False).translate(_TO_URL).decode()

    def is_valid(self, raw: bytes, tenant: str) -> bool:
        """Whether this comparison signed the bytes of an id for the tenant."""
        payload, valid = raw[: _LAYOUT.size], False
        for state in self._of(tenant):
            code = state.copy()
            code.update(payload)
            valid |= compare_digest(code.digest(), raw[_LAYOUT.size :])
        return valid

    def _of(self, tenant: str) -> list[blake2b]:
        """The states of the code after the name of the comparison and that of the tenant, one for each secret."""
        states = self._tenants.get(tenant)
        if states is None:
            if len(self._tenants) >= _MOST_TENANTS:
                self._tenants.clear()
            states = self._tenants[tenant] = [state.copy() for state in self._states]
            for state in states:
                state.update(tenant.encode(errors="surrogatepass") + b"\0")
        return states


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
