"""Certificates and their private keys in PEM files, loaded as pairs.

A renewal writes several files, one after the other. What is read between two writes must not be used: a block that has
no end, or a key that belongs to another certificate. So a pair is read once, checked, and loaded from memory.
"""

import os
import re
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----\s.*?-----END \1-----", re.DOTALL)


class PemPair(msgspec.Struct, frozen=True):
    """The contents of a file of certificates and of the file of its key. They may be the same file."""

    cert: bytes
    key: bytes


class CertificateError(OSError):
    """Files that cannot be used. The message names them, and what is wrong."""


def read_pair(cert: str, key: str | None = None) -> PemPair:
    """Read both files. Raises `CertificateError`, also for a file that is not written to its end."""
    return PemPair(_read(cert), _read(key or cert))


def read_roots(path: str) -> str:
    """Root certificates, for `load_verify_locations(cadata=...)`. Raises `CertificateError`."""
    return _read(path).decode("ascii", "ignore")  # comments may be in any encoding


def modified(path: str) -> int:
    """When a file was last modified, in nanoseconds; 0 without the file. A renewed file has the same path."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def load_pair(context: ssl.SSLContext, pair: PemPair) -> float | None:
    """Load a pair into a context that nobody uses yet. Returns the expiry of its certificate, see `expiry_of`.

    A context in use must not be the argument: OpenSSL drops its key when the certificate does not fit. Raises
    `CertificateError`.
    """
    try:
        with _private_file(pair.cert + b"\n" + pair.key) as path:
            context.load_cert_chain(path, password=_no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise CertificateError("the key does not belong to the certificate") from None
        raise CertificateError(f"{error.reason or error}".lower().replace("_", " ")) from None
    return expiry_of(pair.cert)


def expiry_of(cert: bytes) -> float | None:
    """Unix seconds at which the first certificate of a file expires; None if it cannot be parsed."""
    from cryptography import x509  # only with certificates

    try:
        return x509.load_pem_x509_certificates(cert)[0].not_valid_after_utc.timestamp()
    except ValueError:  # stricter than OpenSSL
        return None


def _read(path: str) -> bytes:
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise CertificateError(f"{path}: {error.strerror or error}") from None
    blocks, rest = _BLOCK.search(content), _BLOCK.sub(b"", content)
    if blocks is None:
        raise CertificateError(f"{path}: has no complete PEM block")
    if b"-----" in rest or rest.rstrip().endswith(b"-"):
        raise CertificateError(f"{path}: ends within a PEM block")
    return content


@contextmanager
def _private_file(content: bytes) -> Iterator[str]:
    """A file for OpenSSL, which takes no bytes: in memory where the system has such files."""
    if hasattr(os, "memfd_create"):
        with open(os.memfd_create("headrace-pair"), "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile() as named:
            named.write(content)
            named.flush()
            yield named.name


def _no_password() -> str:
    """OpenSSL would ask at the terminal."""
    raise CertificateError("the key is encrypted: remove its passphrase")
