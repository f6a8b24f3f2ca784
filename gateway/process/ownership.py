"""Finds other distributions that install a package of the same name as one of the five rooms.

The rooms have general names. The check runs at every start, so it reads no more of the installed distributions than
their lists of packages: `importlib.metadata.packages_distributions` parses every distribution's metadata.
"""

import re
import sys
from collections.abc import Iterable, Mapping
from importlib import metadata
from importlib.metadata import Distribution
from pathlib import Path

ROOMS = ("config", "policies", "adapters", "runtimes", "gateway")
DISTRIBUTION = "headrace"
_INSTALLED = re.compile(rf"^({'|'.join(ROOMS)})(?:/|\.py,)", re.MULTILINE)


def foreign_rooms(owners: Mapping[str, list[str]] | None = None) -> list[str]:
    """One problem for each room that is not of this distribution alone."""
    owners = owners_of_rooms(metadata.distributions()) if owners is None else owners
    home = Path(__file__).parents[2]
    problems = []
    for room in ROOMS:
        others = sorted(set(owners.get(room, [])) - {DISTRIBUTION})
        if others:
            problems.append(f"the package `{room}` also belongs to {', '.join(others)}: uninstall it, or use a venv")
        elif DISTRIBUTION not in owners.get(room, []):
            problems.append(f"the package `{room}` is not installed as part of headrace: run `pip install -e .`")
        elif (module := sys.modules.get(room)) and Path(module.__file__ or "").parent.parent != home:
            problems.append(f"the package `{room}` was imported from {module.__file__}, not from {home}")
    return problems


def owners_of_rooms(distributions: Iterable[Distribution]) -> dict[str, list[str]]:
    """The names of the distributions that install each room."""
    owners: dict[str, list[str]] = {}
    for distribution in distributions:
        for room in _rooms_of(distribution):
            owners.setdefault(room, []).append(distribution.metadata["Name"])
    return owners


def _rooms_of(distribution: Distribution) -> set[str]:
    packages = distribution.read_text("top_level.txt")
    if packages is None:  # not built by setuptools
        return set(_INSTALLED.findall(distribution.read_text("RECORD") or ""))
    return set(ROOMS).intersection(packages.split())
