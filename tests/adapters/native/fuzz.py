"""Compares the native core with Python on generated sequences: `python -m tests.adapters.native.fuzz --help`."""

import argparse
import gc
import importlib.machinery
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any, NamedTuple

from adapters import native
from tests.adapters.native import outcomes, rows, sequences

NAMES = ("whole_request", "whole_response", "whole_chunks", "encoded_fields")


class Kind(NamedTuple):
    """Generates inputs, and returns everything that can be observed of one; `cost` is relative."""

    generate: Callable[[Random], Any]
    outcome_of: Callable[[Any], outcomes.Outcome]
    cost: int = 1


KINDS = {
    "requests": Kind(sequences.requests, outcomes.of_requests),
    "responses": Kind(sequences.responses, outcomes.of_responses),
    "fields": Kind(sequences.fields, outcomes.of_fields),
    "rows": Kind(rows.lives, rows.outcome_of, cost=40),
}


class DifferenceError(Exception):
    """A sequence with two outcomes."""


@dataclass
class Count:
    """Compared sequences, the messages and pieces among them that the native core has parsed, and the operations on
    rows that it has done."""

    sequences: int = 0
    parsed: int = 0
    operations: int = 0


def load(path: Path) -> ModuleType:
    """The extension module of a file, which must not be loaded already."""
    loader = importlib.machinery.ExtensionFileLoader("adapters.native._core", str(path))
    spec = importlib.util.spec_from_loader("adapters.native._core", loader)
    assert spec is not None
    return importlib.util.module_from_spec(spec)


def installed() -> ModuleType:
    """The extension module of this installation."""
    return importlib.import_module("adapters.native._core")


@contextmanager
def using(core: ModuleType | None, count: Count | None = None) -> Iterator[None]:
    """Use a core, or Python alone, within the block."""

    def counted(name: str) -> object:
        function = getattr(core, name)

        def call(*args: object) -> object:
            result = function(*args)
            if count is not None and result is not None:
                count.parsed += 1
            return result

        return call

    before = {name: getattr(native, name) for name in (*NAMES, "row_type")}
    for name in NAMES:
        setattr(native, name, (lambda *_: None) if core is None else counted(name))
    native.row_type = None if core is None else partial(CountedRow, core.Row, count or Count())  # type: ignore[assignment]
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(native, name, function)


class CountedRow:
    """A row of a core that counts the operations that the core has done."""

    def __init__(self, row_type: Callable[..., Any], count: Count, *args: Any, **named: Any) -> None:
        self._row = row_type(*args, **named)
        self._count = count

    def take(self, *args: Any) -> Any:
        taken = self._row.take(*args)
        self._count.operations += taken is not None
        return taken

    def settle(self, *args: Any) -> Any:
        settled = self._row.settle(*args)
        self._count.operations += settled
        return settled

    def undo(self, *args: Any) -> Any:
        undone = self._row.undo(*args)
        self._count.operations += undone
        return undone


def compare(core: ModuleType, seed: int, size: int, count: Count) -> None:
    """Compare `size` sequences of each kind. Raises `DifferenceError` with the first that has two outcomes."""
    for kind, (generate, outcome_of, cost) in KINDS.items():
        rng = Random(f"{kind}{seed}")
        generated = [generate(rng) for _ in range(size // cost)]
        with using(None):
            expected = [outcome_of(pieces) for pieces in generated]
        with using(core, count):
            actual = [outcome_of(pieces) for pieces in generated]
        count.sequences += len(generated)
        for pieces, by_python, by_core in zip(generated, expected, actual, strict=True):
            if by_python != by_core:
                raise DifferenceError(f"{kind}: {pieces!r}\nPython: {by_python!r}\nnative: {by_core!r}")
    gc.collect()  # tables are parts of cycles, and each has descriptors


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=time.time_ns())
    parser.add_argument("--core", type=Path, help="another build of the extension module")
    options = parser.parse_args(argv)
    core = installed() if options.core is None else load(options.core)
    count, end, seed = Count(), time.monotonic() + options.seconds, options.seed
    while time.monotonic() < end:
        try:
            compare(core, seed, 1000, count)
        except DifferenceError as difference:
            print(difference)
            return 1
        seed += 1
    seeds = f"seeds {options.seed} to {seed - 1}"
    print(f"{count.sequences} sequences without a difference, {seeds}")
    print(f"the core parsed {count.parsed} pieces and did {count.operations} operations on rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
