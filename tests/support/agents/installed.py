"""Installs agents in folders of the cache, by npm and pip."""

import json
import shutil
from importlib.metadata import distributions
from pathlib import Path
from typing import NamedTuple

from loadtests import venvs
from tests.support.absent import absent
from tests.support.agents.versions import NPM, PIP
from tests.support.npm import folder_of, install

SCRIPTS = tuple(Path(__file__).parent.glob("*.mjs"))


class Installed(NamedTuple):
    """Where an agent is, and which version of it."""

    programs: Path
    version: str


def installed(name: str, *, newest: bool = False) -> Installed:
    """An agent, installed on first use: the pinned version, or what its registry has as the newest.

    Skips the test where it cannot be installed.
    """
    return _of_pip(name, newest=newest) if name in PIP else _of_npm(name, newest=newest)


def _of_npm(name: str, *, newest: bool) -> Installed:
    packages = NPM[name]
    with folder_of(f"agents/{name}{'-newest' if newest else ''}") as folder:
        if newest:
            (folder / "installed.txt").unlink(missing_ok=True)
            packages = tuple(f"{_name(each)}@latest" for each in packages)
        install(folder, *packages)
        for script in SCRIPTS:
            shutil.copy(script, folder)  # Node looks for packages beside the script
    manifest = folder / "node_modules" / _name(packages[0]) / "package.json"
    return Installed(folder / "node_modules/.bin", str(json.loads(manifest.read_text())["version"]))


def _of_pip(name: str, *, newest: bool) -> Installed:
    packages = [each.split("==")[0] for each in PIP[name]] if newest else PIP[name]
    try:
        folder = venvs.ensure(f"{name}{'-newest' if newest else ''}", packages)
    except venvs.InstallError as error:
        absent(error)
    project = PIP[name][0].split("==")[0]
    versions = distributions(name=project, path=[str(next(folder.glob("lib/python*/site-packages")))])
    return Installed(folder / "bin", next(iter(versions)).version)


def _name(package: str) -> str:
    """The name of a package of npm, without its version."""
    return package[0] + package[1:].split("@")[0]
