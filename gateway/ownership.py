"""The five rooms have general names, so another distribution may bring one of the same name. Look, at start."""

import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

ROOMS = ("config", "policies", "adapters", "runtimes", "gateway")
DISTRIBUTION = "headrace"


def foreign_rooms(owners: Mapping[str, list[str]] | None = None) -> list[str]:
    """A sentence for each room that is not this distribution's alone; empty when all is well."""
    owners = metadata.packages_distributions() if owners is None else owners
    home = Path(__file__).parent.parent
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
