"""Compares the native core with Python on generated sequences: `python -m tests.adapters.native.fuzz --help`."""

import argparse
import importlib.machinery
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

from adapters import native
from tests.adapters.native import outcomes, sequences

NAMES = ("whole_request", "whole_response", "whole_chunks", "encoded_fields")
KINDS: dict[str, tuple[Callable[[Random], Any], Callable[[Any], outcomes.Outcome]]] = {
    "requests": (sequences.requests, outcomes.of_requests),
    "responses": (sequences.responses, outcomes.of_responses),
    "fields": (sequences.fields, outcomes.of_fields),
}


class DifferenceError(Exception):
    """A sequence with two outcomes."""


@dataclass
class Count:
    """Compared sequences, and the messages and pieces among them that the native core has parsed."""

    sequences: int = 0
    parsed: int = 0


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

    before = {name: getattr(native, name) for name in NAMES}
    for name in NAMES:
        setattr(native, name, (lambda *_: None) if core is None else counted(name))
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(native, name, function)


def compare(core: ModuleType, seed: int, size: int, count: Count) -> None:
    """Compare `size` sequences of each kind. Raises `DifferenceError` with the first that has two outcomes."""
    for kind, (generate, outcome_of) in KINDS.items():
        rng = Random(f"{kind}{seed}")
        generated = [generate(rng) for _ in range(size)]
        with using(None):
            expected = [outcome_of(pieces) for pieces in generated]
        with using(core, count):
            actual = [outcome_of(pieces) for pieces in generated]
        count.sequences += len(generated)
        for pieces, by_python, by_core in zip(generated, expected, actual, strict=True):
            if by_python != by_core:
                raise DifferenceError(f"{kind}: {pieces!r}\nPython: {by_python!r}\nnative: {by_core!r}")


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
    print(f"{count.sequences} sequences without a difference; the core parsed {count.parsed} pieces; {seeds}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
