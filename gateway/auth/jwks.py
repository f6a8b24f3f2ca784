"""An issuer's public keys (RFC 7517), fetched in the background."""

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from jwt import PyJWK, PyJWTError

from adapters.whole_body import whole_body
from adapters.wire import decoding
from config.schema.identity import JwtConfig

_log = logging.getLogger(__name__)

MAX_BYTES = 256 * 1024
MAX_KEYS = 64
FETCH_SECONDS = 5.0
UNKNOWN_KEY_SECONDS = 30.0
"""Seconds between two fetches that tokens with an unknown key cause, and between two attempts in an outage."""
_MIN_RSA_BITS = 2048

# The one key type and curve of each algorithm (RFC 7518, 3.1; RFC 8037, 3.1).
_KEY_OF: dict[str, tuple[str, str | None]] = {
    "RS256": ("RSA", None),
    "RS384": ("RSA", None),
    "RS512": ("RSA", None),
    "PS256": ("RSA", None),
    "PS384": ("RSA", None),
    "PS512": ("RSA", None),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
}


class JwksError(Exception):
    """The reason why a key set is not available, for operators."""


class KeySet:
    """Keys by id and algorithm: a key is only ever used with an algorithm made for it."""

    __slots__ = ("_keys",)

    def __init__(self, keys: Mapping[tuple[str | None, str], PyJWK]) -> None:
        self._keys = keys

    def __len__(self) -> int:
        return len({kid for kid, _ in self._keys})

    def find(self, kid: str | None, algorithm: str) -> PyJWK | None:
        """The key that a token names; for a token without a key id, the only key that fits."""
        if kid is not None:
            return self._keys.get((kid, algorithm))
        fitting = [key for (_, made_for), key in self._keys.items() if made_for == algorithm]
        return fitting[0] if len(fitting) == 1 else None


def parse(body: bytes, algorithms: Sequence[str]) -> KeySet:
    """Decode a JWK set. Keys that cannot verify with these algorithms are skipped. Raises `JwksError`."""
    try:
        entries = msgspec.json.decode(body)["keys"]
    except (*decoding.MALFORMED_JSON, TypeError, KeyError):
        raise JwksError('is not a JWK set: a JSON object with "keys"') from None
    if not isinstance(entries, list) or len(entries) > MAX_KEYS:
        raise JwksError(f"is not a list of at most {MAX_KEYS} keys")
    keys: dict[tuple[str | None, str], PyJWK] = {}
    for entry in entries:
        if isinstance(entry, dict) and _may_verify(entry):
            for algorithm in algorithms:
                if _fits(entry, algorithm) and (key := _public_key(entry, algorithm)):
                    keys.setdefault((entry.get("kid"), algorithm), key)
    if not keys:
        raise JwksError(f"has no key for {', '.join(algorithms)}")
    return KeySet(keys)


def _may_verify(entry: Mapping[str, Any]) -> bool:
    operations = entry.get("key_ops", ["verify"])
    return (
        entry.get("use", "sig") == "sig"
        and isinstance(operations, list)
        and "verify" in operations
        and "d" not in entry  # a private key that was published can verify nothing
        and isinstance(entry.get("kid"), str | None)
    )


def _fits(entry: Mapping[str, Any], algorithm: str) -> bool:
    kind, curve = _KEY_OF[algorithm]
    return (
        entry.get("kty") == kind
        and (curve is None or entry.get("crv") == curve)
        and entry.get("alg", algorithm) == algorithm
    )


def _public_key(entry: dict[str, Any], algorithm: str) -> PyJWK | None:
    try:
        key = PyJWK(entry, algorithm)
    except (PyJWTError, ValueError, TypeError, KeyError, AttributeError, ArithmeticError):
        return None
    too_short = entry["kty"] == "RSA" and key.key.key_size < _MIN_RSA_BITS
    return None if too_short else key


class Jwks:
    """The last good key set of one issuer, refreshed by `run`. An outage changes only its age."""

    def __init__(self, config: JwtConfig, clock: Callable[[], float], on_change: Callable[[], None]) -> None:
        assert config.jwks is not None
        self.name = config.name
        self.error = ""
        """The failure of the last fetch; empty after a success."""
        self._source = config.jwks
        self._algorithms = config.algorithms
        self._interval = config.refresh
        self._clock = clock
        self._on_change = on_change
        self._body = b""
        self._keys = KeySet({})
        self._fetched = -math.inf
        self._next_fetch = -math.inf
        self._fetch_now = asyncio.Event()

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def age(self) -> float:
        """Seconds since the keys were last read; infinite before the first read."""
        return self._clock() - self._fetched

    def find(self, kid: str | None, algorithm: str) -> PyJWK | None:
        """The key of a token, from memory. An unknown key id requests a fetch, at a limited rate, for later tokens."""
        key = self._keys.find(kid, algorithm)
        if key is None and (now := self._clock()) >= self._next_fetch:
            self._next_fetch = now + UNKNOWN_KEY_SECONDS
            self._fetch_now.set()
        return key

    def file_may_have_changed(self) -> None:
        """Read a file again now; a URL is fetched at its interval only."""
        if self._source.startswith("file:"):
            self._fetch_now.set()

    async def run(self) -> None:
        """Fetch at intervals and on request, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(UNKNOWN_KEY_SECONDS if self.error else self._interval):
                    await self._fetch_now.wait()
            self._fetch_now.clear()
            await self.refresh()

    async def refresh(self) -> None:
        """One attempt. A failure is logged once, and the keys stay."""
        try:
            body = await self._read()
            if body != self._body:
                self._keys = await asyncio.to_thread(parse, body, self._algorithms)
                self._body = body
                self._on_change()
        except JwksError as error:
            if not self.error:
                _log.warning("auth.jwt %s: %s %s; the current keys stay valid", self.name, self._source, error)
            self.error = str(error)
            return
        if self.error:
            _log.warning("auth.jwt %s: the issuer's keys can be read again", self.name)
        self.error = ""
        self._fetched = self._clock()

    async def _read(self) -> bytes:
        if self._source.startswith("file:"):
            return await asyncio.to_thread(_read_file, Path(self._source.removeprefix("file:")))
        return await fetch(self._source)


def _read_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return _bounded(file.read(MAX_BYTES + 1))
    except OSError as error:
        raise JwksError(f"cannot be read: {error.strerror}") from None


async def fetch(url: str) -> bytes:
    """Fetch at most `MAX_BYTES`.

    Redirects are not followed: only the YAML file names trusted hosts.
    """
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(FETCH_SECONDS), auto_decompress=False) as http,
            http.get(url, allow_redirects=False, headers={"accept-encoding": "identity"}) as response,
        ):
            if response.status != 200:
                raise JwksError(f"was answered with status {response.status}")
            body = await whole_body(response, MAX_BYTES)
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise JwksError(f"cannot be fetched: {error or type(error).__name__}") from None
    return _bounded(body)


def _bounded(body: bytes | None) -> bytes:
    if body is None or len(body) > MAX_BYTES:
        raise JwksError(f"is larger than {MAX_BYTES // 1024} KiB")
    return body
