"""The form of an API key: `hr-<id>-<secret>`, 59 characters.

The id (12 characters of base32) is public: it identifies the key's record, and logs and reports may contain it. The
secret (43 URL-safe characters, 256 bits) is shown once, when the key is issued. The stored value is HMAC-SHA256(pepper,
whole key): a stolen database is of no use without the pepper, and since a hash does not have a key's form, it is never
accepted in place of a key.
"""

import hashlib
import hmac
import math
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from types import MappingProxyType

from config.schema.identity import USER, GrantConfig
from gateway.auth.scope import Scope

ID_CHARS = "abcdefghijklmnopqrstuvwxyz234567"
ID_LENGTH = 12

_ID = re.compile(rf"[a-z2-7]{{{ID_LENGTH}}}")
_KEY = re.compile(rf"hr-([a-z2-7]{{{ID_LENGTH}}})-[A-Za-z0-9_-]{{43}}")
_HARMFUL = re.compile(r"[^A-Za-z0-9._:/@|+-]")
_NAME_LENGTH = 64
_DAY = 86400.0


NO_LABELS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Principal:
    """The identity of a client, from the credential alone. The snapshot has the rights of its tenant.

    `key_id` stays the same for one holder: a key's public id, `jwt:ISSUER:SUBJECT` or `cert:NAME`. `roles` also
    contains an issuer's role names, which routes may match and which give no authority. `labels` are a key's.
    """

    tenant: str
    key_id: str
    roles: frozenset[str] = USER
    labels: Mapping[str, str] = field(default_factory=lambda: NO_LABELS, hash=False)
    scope: Scope | None = None
    """None restricts nothing and costs nothing."""
    team: str = ""
    """The team of the key; empty without one."""
    lineage: str = field(default="", compare=False)
    """The id of the first key that this one replaces; empty for a key that replaces none."""

    @property
    def subject(self) -> str:
        """The identity for limits and usage: all keys of one lineage are one subject, so that a rotation refills
        nothing."""
        return self.lineage or self.key_id


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A new key: the plaintext exists only here."""

    id: str
    plaintext: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """A stored key: its principal, its 32-byte hash, and its expiry in Unix seconds.

    `successor` is the id of the key that replaces it, if it was rotated. A blocked key may be accepted again.
    """

    principal: Principal
    digest: bytes = field(repr=False)
    expires_at: float = math.inf
    successor: str = ""
    revoked: bool = False
    blocked: bool = False


def granted(tenant: str, key_id: str, grant: GrantConfig) -> Principal:
    """The principal of a credential with these rights."""
    roles = USER | {grant.role}
    roles = USER if roles == USER else roles
    return Principal(tenant, key_id, roles, grant.labels or NO_LABELS, Scope.of(grant.scopes), grant.team or "")


def new_key() -> ApiKey:
    """Generate a key. Nothing is stored."""
    key_id = "".join(secrets.choice(ID_CHARS) for _ in range(ID_LENGTH))
    return ApiKey(key_id, f"hr-{key_id}-{secrets.token_urlsafe(32)}")


def id_of(token: str) -> str | None:
    """The public id inside a key, or None when the text does not have a key's form."""
    match = _KEY.fullmatch(token)
    return match[1] if match else None


def is_id(text: str) -> bool:
    """Whether a text has the form of a key id."""
    return _ID.fullmatch(text) is not None


def holder_id(kind: str, name: str) -> str:
    """A `key_id` for a holder without a key: bounded, safe in a log, and different for different names."""
    clean = _HARMFUL.sub("_", name[:_NAME_LENGTH])
    if clean != name:
        clean += "~" + hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:12]
    return f"{kind}:{clean}"


def digest(pepper: bytes, plaintext: str) -> bytes:
    """The stored hash of a key: 32 bytes."""
    return hmac.digest(pepper, plaintext.encode(), "sha256")


def bearer(authorization: str | None, x_api_key: str | None = None) -> str | None:
    """The credential among a request's headers, unchecked; None without one.

    OpenAI's clients send `Authorization: Bearer KEY`, Anthropic's `x-api-key: KEY`. If both are present, the bearer
    token counts.
    """
    if authorization is not None:
        scheme, _, token = authorization.strip().partition(" ")
        if scheme.lower() == "bearer" and (token := token.strip()):
            return token
    return (x_api_key.strip() or None) if x_api_key is not None else None


def end_of_day(day: str) -> float:
    """Unix seconds of the end of the UTC day `YYYY-MM-DD`. Raises `ValueError` for a day that is not one."""
    start = date.fromisoformat(day)
    return datetime(start.year, start.month, start.day, tzinfo=UTC).timestamp() + _DAY
