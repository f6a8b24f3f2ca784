"""Errors of keys and of their database outside of a request.

    KeysError
    ├── KeyConfigError      the configuration says something about keys that cannot work
    ├── WrongGrant          what should come with a new key is not possible
    ├── NoSuchKey           no key has this id
    ├── KeyEnded            the key is revoked, expired or replaced already
    ├── StoreMismatch       the database was written with another pepper or by another release
    └── StoreUnavailable    the database cannot be reached, read or written right now

A request only ever sees `adapters.errors.CredentialError`. Messages are for the operator: they never hold a
key, a hash or a database password.
"""


class KeysError(Exception):
    """Base of all."""


class KeyConfigError(KeysError):
    """Fix the configuration (or the file it points to), then try again."""


class WrongGrant(KeysError):
    """Change what was asked for, then try again. `field` says which part, as it is written in JSON."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.field = field
        self.reason = reason


class NoSuchKey(KeysError):
    """The id is not in the database."""


class KeyEnded(KeysError):
    """The change makes no sense any more: the key has ended."""


class StoreMismatch(KeysError):
    """The database is there, but its keys could not be checked with what this process knows."""


class StoreUnavailable(KeysError):
    """Try again later; keys that are already in memory stay valid meanwhile."""
