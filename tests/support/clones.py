"""A fresh copy of the sources, and the shell of a new user beside it."""

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def sources(folder: Path) -> Path:
    """A copy of the files that git tracks, as a clone has them."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        if not (ROOT / name).exists():
            continue
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target, follow_symlinks=False)
    return folder


def environment(folder: Path) -> dict[str, str]:
    """That of a new user, in whose shell the environment of the sources is active."""
    ours = {"CI", "COLUMNS", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV", "MAKEFLAGS", "MAKELEVEL"}
    others = {name: value for name, value in os.environ.items() if name not in ours}
    own = Path(os.environ.get("VIRTUAL_ENV", "/nowhere"))
    paths = [path for path in os.environ["PATH"].split(":") if not Path(path).is_relative_to(own)]
    return {**others, "PATH": f"{folder}/.venv/bin:{':'.join(paths)}"}
