"""The pepper: the server's secret that every hash of a key depends on."""

import hmac
import os
import secrets
import tempfile
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from config.schema.config import Config
from gateway.auth.errors import KeyConfigError
from gateway.state.database import private_folder, sqlite_path
from gateway.state.errors import StoreUnavailable

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


_MIN_LENGTH = 32
_MAX_LENGTH = 4096


class Pepper(bytes):
    """A pepper, and the one before it while it is rotated."""

    previous: bytes | None = None


def load_pepper(config: Config) -> Pepper:
    """`auth.pepper`, else the contents of the file `pepper` beside the SQLite database, which is created on the first
    start.

    The file contains the same text as `auth.pepper` would, so it can be copied there unchanged. Raises
    `KeyConfigError`, and `StoreUnavailable` if the file cannot be written.
    """
    pepper = Pepper(_present(config))
    if config.auth.previous_pepper is not None:
        pepper.previous = _checked(config.auth.previous_pepper.get_secret_value(), "auth.previous_pepper")
    return pepper


def previous_of(pepper: bytes) -> bytes | None:
    """The pepper before one that is rotated."""
    return pepper.previous if isinstance(pepper, Pepper) else None


def _present(config: Config) -> bytes:
    if config.auth.pepper is not None:
        return _checked(config.auth.pepper.get_secret_value(), "auth.pepper")
    path = pepper_path(config)
    if path is None:
        raise KeyConfigError(
            "auth.pepper is needed with a database that several machines share: all of them need the same pepper. "
            "Generate one with `openssl rand -hex 32` and give it as ${ENV} or file:PATH"
        )
    return _from_file(path)


def derived(pepper: bytes, purpose: str) -> bytes:
    """Derive a secret of the deployment for one purpose: the same in every process with the pepper, irreversible."""
    return hmac.digest(pepper, b"headrace\0" + purpose.encode(), "sha256")


def pepper_path(config: Config) -> Path | None:
    """The path of the pepper's file; None if the pepper is not in a file."""
    if config.auth.pepper is not None:
        return None
    database = sqlite_path(config.state.database)
    return database.with_name("pepper") if database else None


def _checked(text: str, where: str) -> bytes:
    pepper = text.strip().encode()
    if not _MIN_LENGTH <= len(pepper) <= _MAX_LENGTH:
        raise KeyConfigError(
            f"{where}: expected {_MIN_LENGTH} to {_MAX_LENGTH} bytes, got {len(pepper)}; "
            "generate one with `openssl rand -hex 32`"
        )
    return pepper


def _from_file(path: Path) -> bytes:
    try:
        if not path.exists():
            _make(path)
        with path.open("rb") as file:
            # Group bits are accepted: Kubernetes sets them on every file of a volume with an fsGroup.
            if os.fstat(file.fileno()).st_mode & 0o007:
                raise KeyConfigError(f"{path} is open to every user of this machine: run `chmod 600 {path}`")
            text = file.read(_MAX_LENGTH + 2).decode("ascii", "replace")
    except OSError as error:
        raise StoreUnavailable(f"cannot read or create {path}: {error.strerror}") from error
    return _checked(text, str(path))


def _make(path: Path) -> None:
    """Write the whole file under another name, then link it: if two processes race, one wins, and neither reads half a
    file.
    """
    private_folder(path.parent)
    descriptor, draft = tempfile.mkstemp(prefix=".pepper-", dir=path.parent)  # mode 0600
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        os.unlink(draft)
