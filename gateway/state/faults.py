"""The errors of SQLAlchemy, psycopg and sqlite3: the database is away, or it refuses the data."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from gateway.state.errors import StateError, StoreRefused, StoreUnavailable

_REFUSED_STATES = ("21", "22", "23", "42804", "42846", "54")
"""Prefixes of Postgres' SQLSTATE: cardinality, data, integrity, two of types, and limits such as that of an index row.

All others are states of the server that pass or that an operator mends, such as a missing table or right.
"""
_CLOSED = "closed"
"""A word of the errors by which the drivers report the use of a closed connection."""


@contextmanager
def database_errors(subject: str) -> Iterator[None]:
    """Raise `StoreUnavailable` and `StoreRefused` in place of the errors of a database. `subject` begins their text."""
    try:
        yield
    except PoolTimeout as error:
        raise StoreUnavailable(f"{subject} cannot be used now: {_sentence(error)}") from error
    except (StatementError, UnicodeError, OverflowError) as error:
        cause = error.orig if isinstance(error, StatementError) and error.orig is not None else error
        if isinstance(error, DBAPIError) and not _refuses(error):
            # The driver's own message only: SQLAlchemy's adds the statement and its parameters.
            raise StoreUnavailable(f"{subject} cannot be used now: {_sentence(cause)}") from error
        raise StoreRefused(f"{subject} refuses the data: {_sentence(cause)}") from error


def is_outage(error: BaseException) -> bool:
    """Whether a write failed because the database is away, so that the same write may succeed later."""
    return isinstance(error, StateError | OSError) and not isinstance(error, StoreRefused)


def _refuses(error: DBAPIError) -> bool:
    if error.connection_invalidated:
        return False
    state = getattr(error.orig, "sqlstate", None)
    if state is not None:
        return str(state).startswith(_REFUSED_STATES)
    if isinstance(error, ProgrammingError):  # a value of a type that the driver does not have
        return _CLOSED not in str(error.orig)
    return isinstance(error, DataError | IntegrityError)


def _sentence(error: BaseException) -> str:
    """The first paragraph. Python's own errors about a text contain that text."""
    if isinstance(error, UnicodeError):
        return "a text is not valid Unicode"
    return " ".join(str(error).partition("\nDETAIL")[0].split())
