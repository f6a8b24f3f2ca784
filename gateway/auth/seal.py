"""A seal: bytes that only processes with the same pepper can read, and that nobody can change unnoticed."""

import os
from functools import cached_property
from typing import TYPE_CHECKING

from gateway.auth.pepper import derived

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE = 12


class BrokenSeal(Exception):
    """The bytes were sealed under another pepper, for another purpose or context, or they are damaged."""


class Seal:
    """AES-256-GCM under a key that is derived from the pepper for one purpose."""

    def __init__(self, pepper: bytes, purpose: str) -> None:
        self._pepper = pepper
        self._purpose = purpose

    @cached_property
    def _cipher(self) -> "AESGCM":
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # large, and not needed before requests

        return AESGCM(derived(self._pepper, self._purpose))

    def close(self, data: bytes, context: bytes = b"") -> bytes:
        """Seal bytes. To open them, one needs the same context."""
        nonce = os.urandom(_NONCE)
        return nonce + self._cipher.encrypt(nonce, data, context)

    def open(self, sealed: bytes, context: bytes = b"") -> bytes:
        """The bytes under a seal. Raises `BrokenSeal`."""
        from cryptography.exceptions import InvalidTag

        try:
            return self._cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], context)
        except (InvalidTag, ValueError):
            raise BrokenSeal from None
