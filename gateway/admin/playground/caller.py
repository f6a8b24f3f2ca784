"""The principal of a session in a header of the private socket."""

import base64

import msgspec

from adapters.errors import CredentialError
from config.schema.identity import USER
from gateway.auth.keys import Principal

HEADER = "x-headrace-caller"


class _Caller(msgspec.Struct, frozen=True):
    tenant: str
    key: str
    roles: list[str]
    labels: dict[str, str]
    team: str = ""
    lineage: str = ""


def encode_caller(principal: Principal) -> str:
    """The value of the header. A session has no scopes, because a credential with scopes cannot sign in."""
    assert principal.scope is None
    caller = _Caller(
        principal.tenant, principal.key_id, sorted(principal.roles), dict(principal.labels), principal.team,
        principal.lineage,
    )  # fmt: skip
    return base64.b64encode(msgspec.json.encode(caller)).decode()


def decode_caller(header: str | None) -> Principal:
    """The principal of a request. Raises `CredentialError`."""
    try:
        caller = msgspec.json.decode(base64.b64decode(header or "", validate=True), type=_Caller)
    except (ValueError, msgspec.MsgspecError):
        raise CredentialError("the request has no caller", code="missing_api_key").because("session") from None
    roles = frozenset(caller.roles)
    rights = USER if roles == USER else roles, caller.labels, None, caller.team, caller.lineage
    return Principal(caller.tenant, caller.key, *rights)
