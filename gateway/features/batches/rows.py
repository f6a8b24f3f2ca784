"""The rows of files and batches, and the names of their objects in the storage."""

import secrets
from typing import Any, Literal, NamedTuple

import msgspec

from gateway.auth.keys import Principal
from gateway.auth.scope import Scope
from policies.batches.states import BatchProgress

Api = Literal["openai", "anthropic"]
RESULTS = "batch_output"
"""The purpose of files with results. No client uploads one."""


class StoredFile(NamedTuple):
    """A file. `expires_at` is Unix seconds.

    `models` is empty for a file of a client. For results it is a JSON array of globs: models that may have answered.
    """

    id: str
    tenant: str
    purpose: str
    filename: str
    bytes: int
    created_at: float
    expires_at: float
    models: str = ""


class BatchHolder(msgspec.Struct, frozen=True):
    """The rights of the credential that created a batch: its lines run with them."""

    tenant: str
    key_id: str
    roles: list[str]
    labels: dict[str, str]
    scope: dict[str, list[str]] | None = None
    team: str = ""
    lineage: str = ""

    @classmethod
    def of(cls, principal: Principal) -> "BatchHolder":
        """The rights of a principal."""
        scope = None if principal.scope is None else {name: list(v) for name, v in principal.scope.names.items()}
        roles, labels = sorted(principal.roles), dict(principal.labels)
        return cls(principal.tenant, principal.key_id, roles, labels, scope, principal.team, principal.lineage)

    @property
    def models(self) -> list[str]:
        """Globs of the models that the lines may reach."""
        return ["*"] if self.scope is None else self.scope.get("models", ["*"])

    def principal(self) -> Principal:
        """The principal of the lines."""
        scope = None if self.scope is None else Scope(**self.scope)
        return Principal(self.tenant, self.key_id, frozenset(self.roles), self.labels, scope, self.team, self.lineage)


class BatchSpec(msgspec.Struct, frozen=True):
    """The part of a batch that never changes."""

    id: str
    holder: BatchHolder
    api: Api
    endpoint: str
    input_file: str
    output_file: str
    error_file: str
    window: str
    created_at: float
    expires_at: float
    metadata: dict[str, str] | None
    output_lifetime: float
    """Seconds for which the results are stored."""

    @property
    def tenant(self) -> str:
        return self.holder.tenant


class StoredBatch(NamedTuple):
    """A batch with its counts."""

    number: int
    spec: BatchSpec
    progress: BatchProgress


def new_id(prefix: str) -> str:
    """A random id."""
    return f"{prefix}{secrets.token_hex(16)}"


def file_object(id_: str) -> str:
    """The object of a file."""
    return f"files/{id_}"


def batch_folder(id_: str) -> str:
    """The folder of a batch's order and logs."""
    return f"batches/{id_}"


def order_object(id_: str) -> str:
    """The object of the order of a batch's lines."""
    return f"{batch_folder(id_)}/order"


def log_object(id_: str, shard: int, token: int) -> str:
    """The log of one holder of a shard."""
    return f"{batch_folder(id_)}/{shard}.{token}.log"


def decode_spec(text: str) -> BatchSpec:
    return _spec.decode(text)


def decode_progress(text: str) -> BatchProgress:
    return _progress.decode(text)


def encode(value: Any) -> str:
    """Encode a row's JSON."""
    return msgspec.json.encode(value).decode()


_spec = msgspec.json.Decoder(BatchSpec)
_progress = msgspec.json.Decoder(BatchProgress)
