"""Access keys for clients of AWS, which sign their requests with Signature Version 4 instead of sending a key.

Each key of the gateway has one. Its id is the key's own id in another form. Its secret is derived from the pepper and
that id: nothing is stored, and who holds the key alone cannot compute it. With another pepper the secret is another.
"""

import base64
import hmac
import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple, Self

from adapters.credentials.sigv4 import STAMP, AccessKey, SigningScope, signed_fields, signing_key
from adapters.errors import CredentialError
from adapters.http1.message import Request
from gateway.auth.keys import is_id
from gateway.auth.pepper import derived

PREFIX = "HRAK"
SERVICE = "bedrock"
SKEW = 300.0
"""Seconds by which a client's clock may differ: how long a stolen signature is of use for the same request."""
SCHEME = "AWS4-HMAC-SHA256"
_FORM = re.compile(
    rf"{SCHEME}\s+Credential=([A-Za-z0-9]{{1,64}})/(\d{{8}})/([a-z0-9-]{{1,64}})/([a-z0-9-]{{1,64}})/aws4_request,\s*"
    r"SignedHeaders=([a-z0-9;_-]{1,2048}),\s*Signature=([0-9a-f]{64})"
)
_key_of = lru_cache(maxsize=256)(signing_key)
_REMOVED = frozenset({"x-amz-date", "x-amz-security-token"})
"""The fields that signing adds by itself."""


def access_key_id(key_id: str) -> str:
    """The id of a key in AWS's form."""
    return PREFIX + key_id.upper()


def secret_of(pepper: bytes, key_id: str) -> str:
    """The secret access key of a key: 40 characters."""
    return base64.urlsafe_b64encode(
        hmac.digest(derived(pepper, "aws access keys"), key_id.encode(), "sha256")[:30]
    ).decode()


def lines(pepper: bytes, key_id: str) -> str:
    """The access key of a key as variables of the environment, which every client of AWS reads."""
    return f"AWS_ACCESS_KEY_ID={access_key_id(key_id)}\nAWS_SECRET_ACCESS_KEY={secret_of(pepper, key_id)}"


def is_signed(authorization: str | None) -> bool:
    """Whether a request has a signature instead of a key."""
    return authorization is not None and authorization.lstrip().startswith(SCHEME)


class RequestSignature(NamedTuple):
    """The signature of one request."""

    key_id: str
    signed_at: float
    """In Unix seconds."""
    region: str
    names: frozenset[str]
    """The signed header fields."""
    signature: str

    @classmethod
    def of(cls, http: Request, now_utc: float) -> Self:
        """Read the signature of a request. Raises `CredentialError` for one that cannot be valid."""
        match = _FORM.fullmatch((http.headers.get("authorization") or "").strip())
        if match is None:
            raise _refused(f"the header `authorization` has no complete signature {SCHEME}")
        access_id, day, region, service, names, signature = match.groups()
        key_id = access_id.removeprefix(PREFIX).lower()
        if not access_id.startswith(PREFIX) or not is_id(key_id):
            raise _refused("the access key is not one of this gateway: `headrace keys aws` prints them")
        if service != SERVICE:
            raise _refused(f"sign the request for the service `{SERVICE}`")
        own = frozenset(names.split(";"))
        stamp = http.headers.get("x-amz-date") or ""
        unsigned = [name for name in http.headers if name == "host" or name.startswith("x-amz-") if name not in own]
        if "host" not in own or unsigned:
            raise _refused(f"the field `{min(unsigned, default='host')}` is not signed")
        try:
            signed_at = datetime.strptime(stamp, STAMP).replace(tzinfo=UTC).timestamp()
        except ValueError:
            raise _refused("the field `x-amz-date` is missing or no time") from None
        if not stamp.startswith(day):
            raise _refused("the day of the signature is not that of `x-amz-date`")
        if abs(now_utc - signed_at) > SKEW:
            raise _refused(
                f"the time of the signature differs by more than {SKEW:.0f} seconds from this server's clock"
            )
        return cls(key_id, signed_at, region, own, signature)

    def fits(self, http: Request, body: bytes, secret: str) -> bool:
        """Whether a secret made the signature of a request with this body, as it was sent."""
        headers = http.headers
        if any(name not in headers for name in self.names):
            return False
        fields = [(name, headers[name]) for name in self.names - _REMOVED]
        key = AccessKey("", secret, headers.get("x-amz-security-token") or "")
        target = http.received_target.decode("latin-1") + (f"?{http.query}" if http.query else "")
        scope = SigningScope(self.region, SERVICE)
        *_, (_, made) = signed_fields(key, scope, http.method, target, fields, body, self.signed_at, key_of=_key_of)
        return hmac.compare_digest(made.rpartition("Signature=")[2], self.signature)


def _refused(reason: str) -> CredentialError:
    return CredentialError(f"The signature of the request is not valid: {reason}.").because("malformed")
