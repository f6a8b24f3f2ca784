"""README, followed word for word by a new user: a fresh copy of the sources, an empty environment, its ports."""

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from tests.support.agents.model import agent_model
from tests.support.page_commands import section
from tests.support.page_reader import Reader

ROOT = Path(__file__).parents[2]
README = Path("README.md")
PORTS = (8080, 8081, 8082)


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


@pytest.mark.timeout(1800)
async def test_a_new_user_follows_the_page(tmp_path: Path) -> None:
    for port in PORTS:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))  # the page has these ports
    folder = sources(tmp_path / "headrace")
    async with agent_model() as one, agent_model() as other:  # with a list of models, for `probe`
        stand_ins = {"http://10.0.0.5:8000": one.url, "http://10.0.0.6:8000": other.url}
        reader = Reader(folder, environment(folder), stand_ins)
        (folder / "openai.key").write_text("sk-of-a-reader")
        try:
            await reader.follow(section(README, "## Quickstart"))
            assert len(reader.typed) >= 10
            await reader.follow(section(README, "## Use your own servers"))
        finally:
            await reader.aclose()
            shutil.rmtree(folder / ".venv", ignore_errors=True)  # more than a gigabyte
