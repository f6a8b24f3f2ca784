"""What commands show: tables, foreign texts as they are, and their progress."""

import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

T = TypeVar("T")
_WIDEST = 100_000
"""Columns of the widest table in a file."""
INTERVAL = 0.1
"""Seconds between two updates of the line."""


def plain(value: object) -> Text:
    """A foreign text as it is: without control characters, and its markup is no markup."""
    return Text(printable(str(value)))


def printable(text: str) -> str:
    """A foreign text without control characters."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def show(table: RenderableType) -> None:
    """Print on standard output: as wide as the terminal, or as wide as the table needs in a file or a pipe."""
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        needed = Measurement.get(console, console.options.update(max_width=_WIDEST), table).maximum
        console.width = max(console.width, needed)
    console.print(table)


@contextmanager
def working(part: str) -> Iterator[None]:
    """A line with the elapsed time on standard error while a block runs. Nothing is written without a terminal."""
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with _bar(*columns) as bar:
        bar.add_task(part, total=None)
        yield


def measured(items: Iterable[T], part: str, total: int) -> Iterator[T]:
    """The items, with a bar of their share on standard error as they pass."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with _bar(*columns) as bar:
        task = bar.add_task(part, total=total)
        for item in items:
            yield item
            bar.advance(task)


def _bar(*columns: ProgressColumn) -> Progress:
    """The command's output is no part of the display: it may be a file."""
    console = Console(stderr=True)
    return Progress(
        *columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False,
        disable=not sys.stderr.isatty(),
    )  # fmt: skip


def counted(items: Iterable[T], unit: str) -> Iterator[T]:
    """The items, counted on standard error as they pass. Without a terminal there nothing is written."""
    if not sys.stderr.isatty():
        yield from items
        return
    columns = (SpinnerColumn(), TextColumn("{task.completed:,.0f} " + unit), TimeElapsedColumn())
    count, shown = 0, 0.0
    with _bar(*columns) as bar:
        task = bar.add_task("", total=None)
        for item in items:
            count += 1
            if (now := time.monotonic()) - shown > INTERVAL:
                bar.update(task, completed=count)
                shown = now
            yield item
