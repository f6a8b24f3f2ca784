"""Counts the forbidden spans that reach a client through the guards of several gateways.

Each answer of the corpus is requested in each API that a product has, as a stream and as a whole. A stream leaks if the
span stands in what the client has received. A harmless answer that does not arrive is an error of the filter.
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from loadtests.guards import products
from loadtests.guards.corpus import HARMLESS, PLACES, Case, cases
from loadtests.guards.reading import ask, request_body
from loadtests.guards.stub import serving
from loadtests.servers import StartError, Target, running
from loadtests.venvs import InstallError


class Row(NamedTuple):
    """One product in one mode, in one API."""

    product: str
    mode: str
    door: str
    form: str
    """Stream or whole."""


class Counts(NamedTuple):
    """What was counted for a row, by place."""

    total: Counter[str]
    leaked: Counter[str]
    missing: int
    """Harmless answers that did not arrive."""
    failed: int
    """Requests without an answer of this API: the product has no such API here."""


def count(target: Target, mode: products.Mode, door: str, all_cases: Sequence[Case], *, stream: bool) -> Counts:
    """Ask for each case once. Whole answers have no cuts, so only one of each span and place is requested."""
    total, leaked, missing, failed = Counter[str](), Counter[str](), 0, 0
    chosen = target if not mode.headers else replace(target, headers=mode.headers)
    for index, case in enumerate(all_cases):
        if not stream and len(case.chunks) != 1:
            continue
        body = {**request_body(door, f"case {index}", stream=stream), **mode.fields, "model": mode.model}
        received = ask(chosen, door, body)
        if received.status in (404, 405, 500, 501) and not case.kind:
            failed += 1
        elif case.kind:
            total[case.place] += 1
            leaked[case.place] += received.has(case.span)
        else:
            missing += not received.has(HARMLESS)
    return Counts(total, leaked, missing, failed)


def print_table(counted: dict[Row, Counts]) -> None:
    """Print leaks of the requests in each place."""
    table = Table(title="forbidden spans that reached the client, of all answers with one", title_justify="left")
    for column in ("product", "mode", "API", "answer", *PLACES, "harmless answers lost"):
        table.add_column(column, overflow="fold")
    for row, counts in counted.items():
        if counts.failed:
            table.add_row(*row, *("–" for _ in PLACES), "no answers")
        else:
            shown = [f"{counts.leaked[place]} of {counts.total[place]}" for place in PLACES]
            table.add_row(*row, *shown, str(counts.missing))
    Console(width=120).print(table)


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.guards", description=__doc__)
    parser.add_argument("--products", default="headrace,litellm,portkey", help="headrace,litellm,portkey")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the comparison. Status 1 if ours leaked, lost a harmless answer, or could not be measured."""
    names = parse(argv).products.split(",")
    all_cases, counted, wrong = cases(), dict[Row, Counts](), False
    core = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    with tempfile.TemporaryDirectory(prefix="headrace-guards-") as folder, serving(all_cases) as upstream:
        for product in products.products(upstream):
            name = product.gateway.name
            if name not in names:
                continue
            try:
                with contextlib.ExitStack() as stack:
                    prepared = product.gateway.prepare()
                    target = stack.enter_context(running(product.gateway, prepared, upstream, core, Path(folder)))
                    for mode in product.modes:
                        for door in mode.doors:
                            for form in ("stream", "whole"):
                                row = Row(name, mode.name, door, form)
                                counts = count(target, mode, door, all_cases, stream=form == "stream")
                                counted[row] = counts
                                print(row, counts, file=sys.stderr, flush=True)
            except (InstallError, StartError) as error:
                print(f"{name} is missing: {error}", file=sys.stderr, flush=True)
                wrong = wrong or name == "headrace"
    print_table(counted)
    made = {" ".join(row): [sum(counts.leaked.values()), sum(counts.total.values())] for row, counts in counted.items()}
    print(json.dumps({"leaks": made}))
    ours = [counts for row, counts in counted.items() if row.product == "headrace"]
    return 1 if wrong or any(sum(each.leaked.values()) or each.missing or each.failed for each in ours) else 0


if __name__ == "__main__":
    sys.exit(main())
