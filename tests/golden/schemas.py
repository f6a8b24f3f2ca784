"""The tables of every release: a database of any of them must open with this one.

`schemas.txt` has each statement once, with the numbers of the releases whose tables it creates.
"""

from pathlib import Path
from typing import NamedTuple

from gateway.state.schema import SCHEMA_VERSION
from tests.golden.outside import FILES, tables

FILE = FILES / "schemas.txt"


class Release(NamedTuple):
    """The tables of one release, as `tables.txt` has them."""

    number: int
    schema: int
    """The version that its databases store."""
    statements: tuple[str, ...]
    """`DIALECT: STATEMENT`."""


def releases(text: str) -> list[Release]:
    """All releases in a text, the oldest first."""
    versions: dict[int, int] = {}
    statements: dict[int, list[str]] = {}
    for line in text.splitlines():
        first, _, rest = line.partition(" ")
        if first == "release":
            number, _, version = rest.partition(" schema ")
            versions[int(number)] = int(version)
            statements[int(number)] = []
        elif line:
            for each in map(int, first.split(",")):
                statements[each].append(rest)
    return [Release(number, versions[number], tuple(statements[number])) for number in sorted(versions)]


def written(all_releases: list[Release]) -> str:
    """The text of releases."""
    owners: dict[str, list[int]] = {}
    for release in all_releases:
        for statement in release.statements:
            owners.setdefault(statement, []).append(release.number)
    heads = [f"release {release.number} schema {release.schema}\n" for release in all_releases]
    # A table stands before its indexes.
    ordered = sorted(owners.items(), key=lambda entry: "INDEX" in entry[0].partition(" (")[0])
    return "".join([*heads, *(f"{','.join(map(str, numbers))} {text}\n" for text, numbers in ordered)])


def with_present(all_releases: list[Release]) -> list[Release]:
    """The releases with the present one at the end, if its tables differ from the last."""
    present = tuple(tables().splitlines())
    if all_releases and set(all_releases[-1].statements) == set(present):
        return all_releases
    return [*all_releases, Release(len(all_releases) + 1, SCHEMA_VERSION, present)]


def update(path: Path = FILE) -> None:
    """Add the present release to the file if it is a new one."""
    path.write_text(written(with_present(releases(path.read_text()))))
