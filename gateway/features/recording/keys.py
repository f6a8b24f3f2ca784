"""Keys of segments. Each segment has a random key, which is stored encrypted under the configured key.

All encryption is AES-256-GCM. The configured secret is any text; HKDF-SHA256 derives keys from it, one for each purpose
(RFC 5869). A key file is rewritten alone when the configured key changes, and deleted before its segment.
"""

import hashlib
import os
from pathlib import Path

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from config.schema.telemetry import LEAST_KEY

NONCE = 12


class RecordError(Exception):
    """Records cannot be read. The message is for the operator."""


class KeyFile(msgspec.Struct, frozen=True):
    """The content of a key file."""

    secret: str
    """The id of the configured key."""
    wrapped: bytes
    """Nonce and encrypted key of the segment."""
    version: int = 1


class RecordKey:
    """The keys that are derived from the configured secret."""

    def __init__(self, secret: str) -> None:
        """Raises `RecordError` for a secret that is too short."""
        if len(secret) < LEAST_KEY:
            raise RecordError(f"the key of records has at least {LEAST_KEY} characters")
        self._secret = secret.encode()
        self.id = self.derived("id", 8).hex()
        self._wrapping = AESGCM(self.derived("wrapping"))

    def derived(self, purpose: str, length: int = 32) -> bytes:
        """A key for one purpose, from which no other key can be computed."""
        return HKDF(SHA256(), length, salt=None, info=f"headrace record {purpose}".encode()).derive(self._secret)

    def wrap(self, segment: str, key: bytes) -> KeyFile:
        """Encrypt the key of a segment."""
        nonce = os.urandom(NONCE)
        return KeyFile(self.id, nonce + self._wrapping.encrypt(nonce, key, segment.encode()))

    def unwrap(self, segment: str, stored: KeyFile) -> bytes:
        """Decrypt the key of a segment. Raises `RecordError`."""
        if stored.secret != self.id:
            raise RecordError(f"{segment}: was recorded with another key ({stored.secret}; this one is {self.id})")
        try:
            return self._wrapping.decrypt(stored.wrapped[:NONCE], stored.wrapped[NONCE:], segment.encode())
        except InvalidTag:
            raise RecordError(f"{segment}: its key file is altered") from None


def read_key_file(path: Path) -> KeyFile:
    """Raises `RecordError`."""
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=KeyFile)
    except FileNotFoundError:
        raise RecordError(f"{path.name}: the key of the segment is deleted") from None
    except (OSError, msgspec.MsgspecError) as error:
        raise RecordError(f"{path}: is not a key file: {error}") from None


def write_key_file(path: Path, stored: KeyFile) -> None:
    """Write a key file whole, or not at all. Raises `OSError`."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(msgspec.msgpack.encode(stored))
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def keyed_digest(key: bytes, text: str, size: int = 8) -> bytes:
    """A digest of a text that cannot be computed without the key."""
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=size, key=key).digest()
