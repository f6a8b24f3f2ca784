"""Statements with many rows, and with rows that may exist."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite

MOST_ROWS = 500
"""Rows or values of one statement: a database bounds its parameters."""
T = TypeVar("T")


def in_parts(values: Sequence[T], most: int = MOST_ROWS) -> Iterator[Sequence[T]]:
    """The values in parts of at most `most`."""
    for at in range(0, len(values), most):
        yield values[at : at + most]


def insert_into(connection: Connection, table: Table) -> Any:
    """An INSERT with the methods `on_conflict_do_update` and `on_conflict_do_nothing`, which SQL itself lacks."""
    return (sqlite if connection.dialect.name == "sqlite" else postgresql).insert(table)
