"""All groups of tables of the state database."""

import importlib
import pkgutil
from pathlib import Path

import gateway
from gateway.state.schema import TableGroup, groups


def every_group() -> list[TableGroup]:
    """Those of all features, by name."""
    for info in pkgutil.walk_packages(gateway.__path__, "gateway."):
        path = Path(*info.name.split(".")).with_suffix(".py")
        if path.exists() and "TableGroup(" in path.read_text():
            importlib.import_module(info.name)
    return [groups[name] for name in sorted(groups)]
