"""Errors of keys and teams outside of a request.

    StateError
    ├── StateConfigError
    │   └── KeyConfigError  the configuration of keys cannot work
    ├── WrongGrant          the requested rights of a new key, or limits of a team, are not possible
    ├── NoSuchKey           no key has this id
    ├── KeyEnded            the key is revoked, expired, blocked or replaced already
    ├── TooManyKeys         the tenant has as many keys as it may have
    ├── NoSuchTeam          no team of the database has this name
    └── TeamConflict        the team has keys, or the tenant too many teams

Clients receive only `adapters.errors.CredentialError`. Messages are for the operator and never contain a key or a hash.
"""

from gateway.state.errors import StateConfigError, StateError


class KeyConfigError(StateConfigError):
    """Fix the configuration (or the file that it names), then try again."""


class WrongGrant(StateError):
    """Change the request, then try again. `field` names the wrong part as in JSON."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.field = field
        self.reason = reason


class NoSuchKey(StateError):
    """The id is not in the database."""


class KeyEnded(StateError):
    """The key has ended, so the change has no effect."""


class TooManyKeys(StateError):
    """Revoke a key of the tenant, then try again."""


class NoSuchTeam(StateError):
    """The team is not in the database."""


class TeamConflict(StateError):
    """Change the keys or the teams of the tenant, then try again."""
