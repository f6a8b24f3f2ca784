"""Errors of keys and of their database outside of a request.

    KeysError
    ├── KeyConfigError      the configuration of keys cannot work
    ├── WrongGrant          the requested rights of a new key, or limits of a team, are not possible
    ├── NoSuchKey           no key has this id
    ├── KeyEnded            the key is revoked, expired or replaced already
    ├── TooManyKeys         the tenant has as many keys as it may have
    ├── NoSuchTeam          no team of the database has this name
    ├── TeamConflict        the team has keys, or the tenant too many teams
    ├── StoreMismatch       the database was written with another pepper or by another release
    ├── StoreRefused        the database can never store this data
    └── StoreUnavailable    the database cannot be reached, read or written right now

Clients receive only `adapters.errors.CredentialError`. Messages are for the operator and never contain a key, a hash or
a database password.
"""


class KeysError(Exception):
    """The base of all errors of keys."""


class KeyConfigError(KeysError):
    """Fix the configuration (or the file that it names), then try again."""


class WrongGrant(KeysError):
    """Change the request, then try again. `field` names the wrong part as in JSON."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.field = field
        self.reason = reason


class NoSuchKey(KeysError):
    """The id is not in the database."""


class KeyEnded(KeysError):
    """The key has ended, so the change has no effect."""


class TooManyKeys(KeysError):
    """Revoke a key of the tenant, then try again."""


class NoSuchTeam(KeysError):
    """The team is not in the database."""


class TeamConflict(KeysError):
    """Change the keys or the teams of the tenant, then try again."""


class StoreMismatch(KeysError):
    """The database is available, but its keys cannot be verified with this process's pepper or release."""


class StoreRefused(KeysError):
    """The same data is refused each time, for example a text with a NUL character by Postgres."""


class StoreUnavailable(KeysError):
    """Try again later; keys that are in memory stay valid meanwhile."""
