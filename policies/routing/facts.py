"""What a policy may know about one request."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

Feature = Literal["tools", "json_schema", "vision"]
"""What a request may ask of a model beside text."""
NOTHING: Mapping[str, str] = MappingProxyType({})


class Facts(NamedTuple):
    """Identity comes from the credential; everything else is what the client says."""

    tenant: str
    key: str  # the key's id, never its secret
    model: str  # its own name, or the name asked for where it is a family
    headers: Mapping[str, str]  # lower-case names
    stream: bool
    prompt_tokens: int  # an estimate where the gateway has no tokenizer
    user: str | None  # the request's own end-user field
    request_id: str
    roles: frozenset[str] = frozenset()
    labels: Mapping[str, str] = NOTHING  # the key's
    asked: str = ""  # as the client wrote the model, without the version
    version: str = ""  # empty where the client named none
    front: str = "chat"
    max_tokens: int | None = None
    n: int = 1
    time: float = 0.0  # Unix seconds
    sequence: str = ""  # what the requests of one sequence have in common
    uses_feature: Callable[[Feature], bool] = lambda _: False  # found out when a rule wants to know
