"""The texts of servers, without secrets and addresses.

`for_clients` and `for_log` take the text of a model's exception, which may contain a traceback, paths, addresses and
credentials. `Scrubber` takes every text of one server: a refusal may repeat the head of the gateway's request.
"""

import base64
import re
from collections.abc import Iterable
from functools import cached_property
from math import inf
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from adapters.errors import (
    INSTANCE_LOST,
    MODEL_FAILED,
    MODEL_NOT_READY,
    BackendError,
    ComputationLost,
    InferenceError,
    ModelFailed,
    ModelNotReady,
    PoisonRequest,
    ServerFailed,
)
from adapters.wire import decoding

MAX_SCANNED = 8_000
"""Characters of a text that are processed: the patterns take linear time, and a text may have megabytes."""
MAX_TEXT = 1_000

_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t][^\n]*\n|\n)*")
_FRAMES = re.compile(r"\n+At:\n(?:[ \t]+[^\n]*\n?)*")
"""Triton's form of a traceback, which follows the message."""
_NAMES = r"(?i)\b((?:[\w-]{0,40}(?:api[_-]?key|token|secret|passw(?:or)?d|authorization|credential))\w{0,40}[\"']?"
_NAMES += r"\s{0,3}[:=]\s{0,3}[\"']?(?:(?:bearer|basic|token)\s+)?)(?!\[secret\])"
_NAMED_SECRET = re.compile(_NAMES + r"(?!\d+(?:\.\d*)?(?![\w.+/=-]))[^\s\"',;)}\]]+")
"""A value after the name of a secret, unless it is a number: `max_tokens: 5000`."""
_SCHEME = re.compile(
    r"(?i)\b(authorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?:(?:bearer|basic|token)\s+)?)(?!\[secret\])[^\s\"',;)}\]]+"
    r"|\b((?:bearer|basic)\s+)(?:(?=[\w.~+/=-]{0,80}[0-9])[\w.~+/=-]{6,}|[\w.~+/=-]{20,})"
)
_CREDENTIAL = re.compile(_NAMES + r"(?=[\w.~+/=-]{0,80}[0-9])(?=[\w.~+/=-]{0,80}[A-Za-z])[\w.~+/=-]{6,}")
"""A value that looks like a credential after such a name: `token: unexpected` remains."""
_SECRET = re.compile(
    r"\b(?:(?:sk|pk|hr|rk|xox[abp]|hf|gh[opsru]|glpat)[_-]|AKIA|ASIA|AIza)[\w-]{12,}"
    r"|\beyJ[\w-]+\.[\w-]+(?:\.[\w-]*)?"
)
_OPAQUE = re.compile(r"(?<![\w+/=-])(?=[\w+/=-]{0,200}[0-9])(?=[\w+/=-]{0,200}[A-Za-z])[\w+/=-]{32,}")

_URL = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]{0,20}:/{1,3}[^\s\"'<>)\]]+")
_IPV4 = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?(?![\w.]*\d)")
_IPV6 = re.compile(
    r"\[[0-9A-Fa-f:.%\w]{2,60}\](?::\d{1,5})|(?<![\w:])(?:(?:[0-9A-Fa-f]{1,4}:){4,7}[0-9A-Fa-f]{0,4}"
    r"|(?:[0-9A-Fa-f]{1,4}:){0,6}:(?:[0-9A-Fa-f]{1,4}:){0,6}[0-9A-Fa-f]{1,4})(?![\w:])"
)
_HOST = re.compile(
    r"\b[A-Za-z0-9][\w.-]{0,200}:\d{4,5}\b|\blocalhost\b(?::\d{1,5})?"
    r"|\b(?:[A-Za-z0-9][\w-]{0,62}\.){1,10}(?:svc|local|internal|cluster|lan|corp|intranet|consul)\b(?:\.\w+)*(?::\d+)?"
)
_PATH = re.compile(r"(?<![\w.\])}>])~?(?:/[\w.@+%=~-]+){2,}/?|\b[A-Za-z]:\\[^\s\"']+")


def for_log(text: str) -> str:
    """Return the text as one bounded line without credentials."""
    text = _TRACEBACK.sub("", text[:MAX_SCANNED])
    text = _FRAMES.sub("", text)
    text = _NAMED_SECRET.sub(r"\1[secret]", text)
    text = _SECRET.sub("[secret]", _SCHEME.sub(r"\1\2[secret]", text))
    return " ".join(_printable(text).split())[:MAX_TEXT]


def for_clients(text: str) -> str:
    """Return the text as one bounded line without addresses, paths of the machine and possible credentials."""
    text = _URL.sub("[address]", for_log(text))
    text = _IPV6.sub("[address]", _IPV4.sub("[address]", text))
    text = _PATH.sub("[path]", _HOST.sub("[address]", text))
    return _OPAQUE.sub("[secret]", text)[:MAX_TEXT]


class MadeSecrets:
    """Credentials that the process has made for servers, the newest `MOST`: they are in no file."""

    MOST = 64

    def __init__(self) -> None:
        self._secrets: dict[str, None] = {}

    def add(self, secret: str) -> None:
        """Note one."""
        if len(secret) >= LEAST:
            self._secrets.pop(secret, None)
            self._secrets[secret] = None
            while len(self._secrets) > self.MOST:
                del self._secrets[next(iter(self._secrets))]

    def without(self, text: str) -> str:
        """The text without them."""
        for secret in self._secrets:
            text = text.replace(secret, "[secret]")
        return text


MADE = MadeSecrets()
E = TypeVar("E", bound=BaseException)
LEAST = 6
"""Characters of the shortest credential that is found by its value: a shorter one occurs in ordinary words."""
_CUT = 8
"""Characters of a credential that are found at the end of a text that was cut."""
_REST = r"[^\s\"'<>)\]}\\]*"
"""The rest of a URL."""
_END = r"(?![\w-]|\.\w)"
"""The end of a host or a port."""


class Scrubber:
    """Removes from the texts of one server its credentials and its addresses, in any form, by their values.

    Texts for clients and for the log also lose whatever has the form of a credential, and control characters. Ordinary
    words, numbers and other servers' URLs remain: the text explains a refusal.
    """

    def __init__(self, secrets: Iterable[str] = (), addresses: Iterable[str] = ()) -> None:
        """`secrets` are the values that the gateway sends to the server, `addresses` its URLs, hosts or sockets."""
        self._secrets = tuple(secret for secret in secrets if len(secret) >= LEAST)
        self._addresses = tuple(filter(None, addresses))

    def at(self, address: str) -> "Scrubber":
        """The scrubber of the same server at another address."""
        return Scrubber(self._secrets, (address,))

    def text(self, text: str) -> str:
        """The text for a client or for the log, with at most `MAX_SCANNED` characters of it."""
        text = _SCHEME.sub(r"\1\2[secret]", self.without_values(text[:MAX_SCANNED]))
        return _printable(_SECRET.sub("[secret]", _CREDENTIAL.sub(r"\1[secret]", text)))

    def error(self, error: E) -> E:
        """The error, whose texts are replaced: message, field, code, detail, reason."""
        if not isinstance(error, InferenceError):
            return error
        for name, value in vars(error).items():
            if isinstance(value, str):
                setattr(error, name, self.text(value))
            elif isinstance(value, tuple):
                setattr(error, name, tuple(self.text(one) if isinstance(one, str) else one for one in value))
        error.args = (error.message,)
        return error

    def body(self, body: bytes) -> bytes:
        """A body that is forwarded: JSON remains JSON, and a body without a value that is removed is unchanged."""
        try:
            decoded = msgspec.json.decode(body)
            scrubbed = self._json(decoded)
            return body if scrubbed == decoded else msgspec.json.encode(scrubbed)
        except (*decoding.MALFORMED_JSON, OverflowError):
            return self.without_values(body.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def without_values(self, text: str) -> str:
        """The text without credentials and addresses."""
        text = MADE.without(text)
        if self._values is not None:
            text = self._values.sub(lambda match: "[secret]" if match["secret"] else "[address]", text)
        for secret in self._secrets:
            for size in range(min(len(secret), len(text)), _CUT - 1, -1):
                if text.endswith(secret[:size]):
                    return text[:-size] + "[secret]"
        return text

    def _json(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.without_values(value)
        if isinstance(value, list):
            return [self._json(item) for item in value]
        if isinstance(value, dict):
            return {self._json(name): self._json(item) for name, item in value.items()}
        return value

    @cached_property
    def _values(self) -> re.Pattern[str] | None:
        """Finds the values, the longest first; None without values. It is compiled at the first failure."""
        secrets = "|".join(map(re.escape, _longest_first(form for one in self._secrets for form in _forms(one))))
        addresses = "|".join(_longest_first(form for one in self._addresses for form in _places(one)))
        parts = [f"(?P<secret>{secrets or '(?!)'})", *([f"(?i:{addresses})"] if addresses else [])]
        return re.compile("|".join(parts)) if secrets or addresses else None


def _printable(text: str) -> str:
    return text if text.isprintable() else "".join([s if s.isprintable() or s in "\n\t" else " " for s in text])


def _longest_first(texts: Iterable[str]) -> list[str]:
    return sorted(set(texts), key=len, reverse=True)


def _forms(secret: str) -> Iterable[str]:
    """A credential as it is, in JSON, in a URL, and in base64, alone or within a longer text."""
    yield from (secret, msgspec.json.encode(secret).decode()[1:-1], quote(secret, safe=""))
    for offset in range(3):
        encoded = base64.b64encode(bytes(offset) + secret.encode()).decode().rstrip("=")
        inner = encoded[offset and offset + 1 : len(encoded) if (offset + len(secret.encode())) % 3 == 0 else -1]
        if len(inner) >= LEAST:
            yield from (inner, inner.replace("+", "-").replace("/", "_"))


def _places(address: str) -> Iterable[str]:
    """Patterns of an address: URLs with its host, the host with any port, and a host that is no ordinary word."""
    if "://" not in address:
        yield re.escape(address.removeprefix("unix:"))
        return
    host = urlsplit(address).hostname or ""
    name = re.escape(f"[{host}]" if ":" in host else host)
    is_word = not {".", ":"} & set(host)
    yield rf"https?:/{{1,3}}{name}(?::\d{{1,5}})?{_END}{_REST}"
    yield rf"(?<![\w.-]){name}(?::\d{{1,5}}){'' if is_word else '?'}{_END}"


# Typed errors for failures that servers report in their own text.

FAILED = "The upstream failed."


def model_failure(text: str | None) -> BackendError:
    """Return the error for a model of a tensor server that failed with this text: a second attempt would fail too."""
    return _reported(ModelFailed, text, FAILED)


def server_failure(text: str | None, otherwise: str = FAILED) -> BackendError:
    """Return the error for a server that failed with this text. Without a text the message is `otherwise`."""
    return _reported(ServerFailed, text, otherwise)


def _reported(kind: type[ModelFailed], text: str | None, otherwise: str) -> BackendError:
    if not text or not (message := for_clients(text)):
        return BackendError(otherwise)
    return kind(message, detail=for_log(text))


def reported_failure(code: str | None, text: str | None, retry_after: float | None = None) -> InferenceError | None:
    """Return the error that a runtime reports by its own code; None for any other code.

    Without a `retry_after`, the error for a model that is not ready permits no retry.
    """
    if code == MODEL_FAILED:
        text = text or "The model failed."
        return PoisonRequest(for_clients(text), detail=for_log(text))
    if code == INSTANCE_LOST:
        text = for_clients(text or "The copy of the model that computed this died or took too long.")
        return ComputationLost(text, detail=text, retry_after=retry_after)
    if code == MODEL_NOT_READY and text:
        return ModelNotReady(for_clients(text), retry_after=inf if retry_after is None else retry_after)
    return None
