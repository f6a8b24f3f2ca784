"""The keys in memory, replaced as a whole."""

import hmac
import math
import secrets
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from hashlib import blake2b
from types import MappingProxyType

from adapters.errors import CapacityError, CredentialError
from config.schema.config import Config
from gateway.auth.changes import overlay
from gateway.auth.errors import KeyConfigError
from gateway.auth.keys import ApiKey, KeyRecord, Principal, digest, end_of_day, granted, id_of, is_id
from gateway.auth.pepper import previous_of
from gateway.auth.teams.store import StoredTeam

REFUSED = "the API key or token is not valid: it is unknown, revoked or expired"
"""The only message for credentials that are not accepted, of every kind and for every reason."""
_NOT_READ = "the key cannot be checked: the key database has been unavailable since the gateway started"
_MISSING = "no API key given: send it as `Authorization: Bearer KEY` or `x-api-key: KEY`"
# Stands in for a missing record, so that a refusal takes the same work for every reason.
_NO_RECORD = KeyRecord(Principal("", ""), secrets.token_bytes(32), -math.inf)
NONE_ENDED: Mapping[str, KeyRecord] = MappingProxyType({})
_FINGERPRINT = blake2b(digest_size=32, key=secrets.token_bytes(32))
"""The keyed state of each fingerprint: a copy costs less than processing the key again."""


class KeyTable:
    """Holds one set of keys. Every principal that it returns belongs to a tenant of the configuration it was built
    from.

    A key that was accepted once is recognized by its fingerprint, which costs a quarter of the HMAC. There is at most
    one fingerprint for each key, and it is useless outside this process.
    """

    __slots__ = ("_accepted", "_ended", "_is_complete", "_pepper", "_records", "_tenants", "on_old_pepper", "teams")

    def __init__(
        self,
        pepper: bytes,
        records: Mapping[str, KeyRecord],
        teams: tuple[StoredTeam, ...] = (),
        ended: Mapping[str, KeyRecord] = NONE_ENDED,
        tenants: Container[str] = (),
        *,
        is_complete: bool = True,
    ) -> None:
        """`ended` has keys that are not accepted, so that a refusal can name its reason; `tenants` are those of
        the configuration."""
        self._pepper = pepper
        self._is_complete = is_complete
        self._tenants = tenants
        self._ended = overlay(ended)
        self.teams = teams
        """The teams of the database."""
        self._records = overlay(records)
        self._accepted: dict[bytes, KeyRecord] = {}
        self.on_old_pepper: Callable[[str, bytes], object] = lambda _id, _hash: None
        """Receives the id and the new hash of a key whose hash is under the previous pepper."""

    @classmethod
    def build(
        cls,
        config: Config,
        pepper: bytes,
        issued: Iterable[KeyRecord] = (),
        demo: ApiKey | None = None,
        teams: tuple[StoredTeam, ...] = (),
        ended: Iterable[KeyRecord] = (),
        *,
        is_complete: bool = True,
    ) -> "KeyTable":
        """Combine the keys of the file, of the database (`issued`) and the demo key, and the teams of the database.

        `ended` are keys of the database that are revoked, blocked or expired.

        An issued key whose tenant is not in the file is not accepted; if the file and the database have the same id,
        the file takes precedence. Without `is_complete`, the keys of the database are not read yet. Raises
        `KeyConfigError` when a key of the file can never be used.
        """
        tenants = {tenant.name for tenant in config.tenants}
        records = {r.principal.key_id: r for r in issued if r.principal.tenant in tenants}
        gone = {r.principal.key_id: r for r in (*ended, *issued) if r.principal.key_id not in records}
        records.update(written_keys(config))
        if demo is not None and config.auth.demo_key:
            principal = Principal(demo_tenant(config), demo.id)
            records[demo.id] = KeyRecord(principal, digest(pepper, demo.plaintext))
        return cls(pepper, records, teams, gone, frozenset(tenants), is_complete=is_complete)

    def changed(
        self,
        config: Config,
        issued: Mapping[str, KeyRecord | None],
        teams: tuple[StoredTeam, ...],
        ended: Iterable[KeyRecord] = (),
    ) -> "KeyTable":
        """The table with other records of some keys of the database, None for an ended one, which `ended` may have.

        `config` is that of `build`. The cost is that of the changes, however many keys there are.
        """
        tenants = {tenant.name for tenant in config.tenants}
        written = {key.id for tenant in config.tenants for key in tenant.keys}
        former = {r.principal.key_id: r for r in ended if r.principal.key_id in issued}
        records, gone = dict[str, KeyRecord | None](), dict[str, KeyRecord | None]()
        for key_id, record in issued.items():
            gone[key_id] = None
            if key_id in written:
                continue
            is_valid = record is not None and record.principal.tenant in tenants
            records[key_id] = record if is_valid else None
            if not is_valid:
                gone[key_id] = record or former.get(key_id)
        now = self._records.changed(records), teams, self._ended.changed(gone)
        table = KeyTable(self._pepper, *now, frozenset(tenants))
        table.on_old_pepper = self.on_old_pepper
        return table

    def __len__(self) -> int:
        return len(self._records)

    def authenticate(self, token: str | None, now_utc: float) -> Principal:
        """The principal of a key at `now_utc` (Unix seconds).

        Raises `CredentialError`, and `CapacityError` for a key that may be one of the database, which is not read yet.

        Runs on every request. The error is the same for a key that is malformed, unknown, wrong, revoked or expired.
        """
        if token is None:
            raise CredentialError(_MISSING, code="missing_api_key").because("missing")
        state = _FINGERPRINT.copy()
        state.update(token.encode("utf-8", "surrogatepass"))
        fingerprint = state.digest()
        record = self._accepted.get(fingerprint)
        if record is None:
            record = self._accepted[fingerprint] = self._check(token)
        if now_utc >= record.expires_at:
            raise self._refused(record)
        return record.principal

    def signer(self, key_id: str, fits: Callable[[str], bool], now_utc: float) -> Principal:
        """The principal of a request that is signed with the secret access key of a key. `fits` checks the signature
        with a secret.

        Raises `CredentialError`, and `CapacityError` for a key that may be one of the database, which is not read yet.
        """
        from gateway.auth.aws import secret_of  # few gateways have clients that sign

        record = self._records.get(key_id) or self._ended.get(key_id, _NO_RECORD)
        peppers = [pepper for pepper in (self._pepper, previous_of(self._pepper)) if pepper is not None]
        if not any(fits(secret_of(pepper, key_id)) for pepper in peppers):
            if not self._is_complete and record is _NO_RECORD:
                raise CapacityError(_NOT_READ, code="key_database_unavailable", retry_after=1.0)
            raise CredentialError(REFUSED).because("unknown" if record is _NO_RECORD else "wrong_secret", key=key_id)
        if record is _NO_RECORD:
            raise CredentialError(REFUSED).because("unknown", key=key_id)
        if key_id not in self._records or now_utc >= record.expires_at:
            raise self._refused(record)
        return record.principal

    def holder(self, key_id: str, now_utc: float) -> Principal | None:
        """The principal of a key; None if the key is not here, or has expired."""
        record = self._records.get(key_id)
        return record.principal if record is not None and now_utc < record.expires_at else None

    def has_ended(self, key_id: str, now_utc: float) -> bool:
        """Whether an id is that of a key which is revoked, removed or expired. Holders without a key have other ids."""
        record = self._records.get(key_id, _NO_RECORD)
        return is_id(key_id) and now_utc >= record.expires_at

    def _check(self, token: str) -> KeyRecord:
        """One look-up, one HMAC, one comparison in constant time; two of them while the pepper is rotated."""
        key_id = id_of(token)
        record = _NO_RECORD if key_id is None else self._records.get(key_id) or self._ended.get(key_id, _NO_RECORD)
        offered = digest(self._pepper, token if key_id is not None else "")
        previous = previous_of(self._pepper)
        if previous is not None and key_id and hmac.compare_digest(digest(previous, token), record.digest):
            self.on_old_pepper(key_id, offered)
        elif not hmac.compare_digest(offered, record.digest):
            if not self._is_complete and key_id is not None and record is _NO_RECORD:
                raise CapacityError(_NOT_READ, code="key_database_unavailable", retry_after=1.0)
            cause = "malformed" if key_id is None else "unknown" if record is _NO_RECORD else "wrong_secret"
            raise CredentialError(REFUSED).because(cause, key=key_id)
        if key_id not in self._records:
            raise self._refused(record)
        return record

    def _refused(self, record: KeyRecord) -> CredentialError:
        """The refusal of a key that was accepted once. Its secret is right, so its holder may be named."""
        holder, error = record.principal, CredentialError(REFUSED)
        if record.revoked:
            cause = "revoked"
        elif record.blocked:
            cause = "blocked"
        elif record.successor:
            cause = "rotated"
        else:
            cause = "expired" if record.expires_at < math.inf else "tenant_removed"
        if holder.tenant in self._tenants:  # of no other tenant is there a limit of its series and its records
            error.holder = holder.tenant, holder.key_id, holder.team
        return error.because(cause, key=holder.key_id, tenant=holder.tenant, rotated_to=record.successor)


def demo_tenant(config: Config) -> str:
    """The tenant of the demo key: the one named `demo`, else the first."""
    names = [tenant.name for tenant in config.tenants]
    return "demo" if "demo" in names else names[0]


def written_keys(config: Config) -> dict[str, KeyRecord]:
    """The keys of the file itself, by id."""
    records: dict[str, KeyRecord] = {}
    problems: list[str] = []
    for tenant in config.tenants:
        for key in tenant.keys:
            where = f"tenant {tenant.name}, key {key.id}"
            if not is_id(key.id):
                problems.append(f"{where}: `id` is the 12 characters between `hr-` and the next `-` of the key")
            if key.id in records:
                problems.append(f"{where}: tenant {records[key.id].principal.tenant} has a key of the same id")
            end = end_of_day(key.expires) if key.expires else math.inf
            if key.lineage is not None and not is_id(key.lineage):
                problems.append(f"{where}: `lineage` is the id of the first key that this one replaces, 12 characters")
            holder = replace(granted(tenant.name, key.id, key), lineage=key.lineage or "")
            records[key.id] = KeyRecord(holder, bytes.fromhex(key.hash), end)
    if problems:
        raise KeyConfigError("\n".join(problems))
    return records
