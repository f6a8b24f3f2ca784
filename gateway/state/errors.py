"""Errors of the state database.

    StateError
    ├── StateConfigError    the configuration of the database, or of what is in it, cannot work
    ├── StoreMismatch       the database was written with another pepper or by another release
    ├── StoreRefused        the database can never store this data
    └── StoreUnavailable    the database cannot be reached, read or written right now

Those of keys and teams are in `gateway/auth/errors.py`. Messages are for the operator and never contain a password.
"""


class StateError(Exception):
    """The base of all errors of the state database and of what it stores."""


class StateConfigError(StateError):
    """Fix the configuration, then try again."""


class StoreMismatch(StateError):
    """The database is available, but its keys cannot be verified with this process's pepper or release."""


class StoreRefused(StateError):
    """The same data is refused each time, for example a text with a NUL character by Postgres."""


class StoreUnavailable(StateError):
    """Try again later; what is in memory stays valid meanwhile."""
