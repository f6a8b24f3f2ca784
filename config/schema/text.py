"""Texts with a shape: names, globs and their relations, addresses, and references out of the file."""

import ipaddress
import re
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, GetCoreSchemaHandler, GetJsonSchemaHandler, SecretStr, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from config.schema.units import or_environment

ENV_NAME = r"[A-Za-z_][A-Za-z0-9_]*"


@dataclass(frozen=True)
class Shape:
    """A pattern and its description, so that errors need not show the pattern."""

    pattern: str
    expected: str

    def check(self, text: str) -> str:
        """Return a matching text. Raises ``ValueError`` with the description."""
        if re.fullmatch(self.pattern, text) is None:
            raise ValueError(f"expected {self.expected}")
        return text

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(schema), "pattern": or_environment(self.pattern)}


def real_port(url: str) -> str:
    """Require a port on which a server can listen."""
    try:
        port = None if url.startswith(("unix:", "file:")) else urlsplit(url).port
    except ValueError:
        raise ValueError("the URL's host or port is not valid: a port is a number up to 65535") from None
    if port == 0:
        raise ValueError("the URL's port is 0, where nothing can listen")
    return url


def private_or_local(source: str) -> str:
    """Require HTTPS or a local source of keys: an attacker that can change the keys in transit can sign any token."""
    if source.startswith("http://"):
        host = urlsplit(source).hostname or ""
        try:
            local = host == "localhost" or ipaddress.ip_address(host).is_loopback
        except ValueError:
            local = False
        if not local:
            raise ValueError("keys come over https://; plain http:// is for loopback only")
    return source


def _real_date(text: str) -> str:
    try:
        date.fromisoformat(text)
    except ValueError:
        raise ValueError("there is no such day in the calendar") from None
    return text


Name = Annotated[
    str,
    Shape(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}", "a name: up to 128 letters, digits and . _ : / - (not first)"),
]
ModelName = Annotated[
    str,
    Shape(
        r"[A-Za-z0-9][A-Za-z0-9._:/@()+\[\]-]{0,127}",
        "a model's name: up to 128 letters, digits and . _ : / - @ + ( ) [ ]",
    ),
]
"""Names of models at hosted APIs: ``claude-opus-4-6[1m]``, ``org/model@20250514``."""
Glob = Annotated[
    str,
    Shape(
        r"[A-Za-z0-9*?\[\]!][A-Za-z0-9._:/@()+*?\[\]!-]{0,127}",
        "a name or a glob: up to 128 letters, digits, . _ : / - @ + ( ) and the wildcards * ? [ab] [!ab]",
    ),
]
HTTP_URL = r"https?://[^\s/?#@]+(/[^\s?#]*)?|unix:/[^\s?#]+"
Url = Annotated[
    str,
    Shape(
        HTTP_URL,
        "http://HOST:PORT, https://HOST:PORT or unix:/PATH, without a user, a query or a fragment",
    ),
    AfterValidator(real_port),
]
Jwks = Annotated[
    str,
    Shape(r"https?://[^\s/?#@]+([/?][^\s#]*)?|file:.+", "https://HOST/PATH, or file:PATH"),
    AfterValidator(real_port),
    AfterValidator(private_or_local),
]
"""The source of an issuer's public keys. ``file:PATH`` is relative to the YAML file's folder."""
Date = Annotated[str, Shape(r"\d{4}-\d{2}-\d{2}", "a day such as 2027-06-30"), AfterValidator(_real_date)]
ProbePath = Annotated[str, Shape(r"/\S{0,512}", "a path such as /health")]
HeaderName = Annotated[str, Shape(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}", "an HTTP header's name")]

_NOT_FOR_A_KEY = {
    "accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "cookie", "expect",
    "forwarded", "host", "keep-alive", "proxy-connection", "range", "te", "trailer", "transfer-encoding", "upgrade",
    "user-agent", "via", "x-request-id",
}  # fmt: skip

_OWN = {"authorization", "proxy-authorization", "traceparent", "tracestate", "anthropic-version", "anthropic-beta"}


def _has_a_meaning(name: str) -> bool:
    return name.lower() in _NOT_FOR_A_KEY or name.lower().startswith(("inference-header-", "grpc-", "x-forwarded-"))


def _of_a_key(name: str) -> str:
    if _has_a_meaning(name):
        raise ValueError("this header has a meaning of its own: a key goes into authorization, api-key or the like")
    return name


def plain_header(name: str) -> str:
    """Require a header that the gateway does not write itself."""
    if _has_a_meaning(name) or name.lower() in _OWN:
        raise ValueError("the gateway writes this header itself: a credential is the pool's `key`, with `key_header`")
    return name


KeyHeader = Annotated[HeaderName, AfterValidator(_of_a_key)]

Secret = Annotated[
    SecretStr,
    WithJsonSchema(
        {
            "type": "string",
            "pattern": rf"^(\$\{{{ENV_NAME}\}}|file:.+)$",
            "examples": ["${API_KEY}", "file:api-key.txt"],
        }
    ),
]
"""A secret: ``${NAME}`` or ``file:PATH``. The loader rejects inline secrets."""

PemFile = Annotated[str, WithJsonSchema({"type": "string", "examples": ["tls/server.pem"]})]
"""Path of a PEM file, relative to the YAML file's folder."""

LocalFile = Annotated[str, WithJsonSchema({"type": "string", "examples": ["endpoints.yaml"]})]
"""Path of a file that the running gateway reads repeatedly, relative to the YAML file's folder."""


_LITERALS_AND_STARS = re.compile(r"[^?\[\]!]*")


def is_glob(name: str) -> bool:
    """Whether a name is a glob, and so names a family."""
    return re.search(r"[*?\[]", name) is not None


def covers(wide: str, narrow: str) -> bool:
    """Whether ``wide`` certainly matches every name that ``narrow`` matches.

    If ``wide`` has only literals and stars, it can be matched against the text of ``narrow`` itself, as a star
    matches any wildcard. The result for other pairs is False, which rejects nothing.
    """
    if wide == narrow:
        return True
    if is_glob(narrow) and not _LITERALS_AND_STARS.fullmatch(wide):
        return False
    return fnmatchcase(narrow, wide)


def may_overlap(one: str, other: str) -> bool:
    """Whether a name may match both patterns. Two globs are compared by their literal beginnings only."""
    if not is_glob(one):
        return fnmatchcase(one, other)
    if not is_glob(other):
        return fnmatchcase(other, one)
    a, b = re.split(r"[*?\[]", one)[0], re.split(r"[*?\[]", other)[0]
    return a.startswith(b) or b.startswith(a)
