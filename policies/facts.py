"""The input of the policies: the properties of one request."""

from collections.abc import Callable, Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import Literal, NamedTuple

Feature = Literal["tools", "json_schema", "vision"]
"""A capability of the model that a request requires."""
MOST_USER = 128
"""Characters of an end user; a longer text is replaced by its hash."""
NOTHING: Mapping[str, str] = MappingProxyType({})


class Facts(NamedTuple):
    """The properties of one request. Identity comes from the credential, everything else from the client."""

    tenant: str
    key: str  # the key's id, never its secret
    model: str  # its own name; for a family, the requested name
    headers: Mapping[str, str]  # lower-case names
    stream: bool
    prompt_tokens: int  # an estimate without a tokenizer
    user: str | None  # the request's own end-user field
    request_id: str
    roles: frozenset[str] = frozenset()
    labels: Mapping[str, str] = NOTHING  # the key's
    requested: str = ""  # the requested model, without the version
    version: str = ""  # empty if the client names none
    front: str = "chat"
    max_tokens: int | None = None
    n: int = 1
    time: float = 0.0  # Unix seconds
    sequence: str = ""  # the same for all requests of a sequence
    uses_feature: Callable[[Feature], bool] = lambda _: False  # evaluated only if a rule requires it
    team: str = ""  # the key's; empty without one
    lineage: str = ""  # the first key that this one replaces; empty for a key that replaces none

    @property
    def end_user(self) -> str:
        """The end user as limits and usage name it; empty without one."""
        return bounded_user(self.user) if self.user else ""

    @property
    def subject(self) -> str:
        """The identity for limits: a rotated key continues with the usage of the one before."""
        return self.lineage or self.key


def bounded_user(user: str) -> str:
    """The name of an end user, which is a text of the client: a long one is replaced by its hash."""
    return user if len(user) <= MOST_USER else sha256(user.encode("utf-8", "surrogatepass")).hexdigest()
