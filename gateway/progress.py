"""The progress of a long command on a terminal."""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

T = TypeVar("T")
INTERVAL = 0.1
"""Seconds between two updates of the line."""


def counted(items: Iterable[T], unit: str) -> Iterator[T]:
    """The items, counted on standard error as they pass. Without a terminal there nothing is written."""
    if not sys.stderr.isatty():
        yield from items
        return
    columns = (SpinnerColumn(), TextColumn("{task.completed:,.0f} " + unit), TimeElapsedColumn())
    count, shown = 0, 0.0
    console = Console(stderr=True)
    # The command's output is no part of the display: it may be a file.
    with Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False) as bar:
        task = bar.add_task("", total=None)
        for item in items:
            count += 1
            if (now := time.monotonic()) - shown > INTERVAL:
                bar.update(task, completed=count)
                shown = now
            yield item
