"""Pages that a new user follows word for word, in a fresh copy of the sources and a network of its own."""

import asyncio
import json
import shutil
import sys
from pathlib import Path

import pytest

from loadtests.peers.networks import prefix
from tests.support.clones import sources
from tests.support.followed import PAGES

IN_OWN_TESTS = {
    "README.md": "tests/servers/test_readme.py",
    "docs/air-gapped.md": "tests/e2e/test_air_gapped_page.py",
    "docs/backup.md": "tests/e2e/test_backup_page.py",
    "docs/failures.md": "tests/e2e/test_failures_page.py",
    "docs/secrets.md": "tests/e2e/test_secrets_page.py",
}


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all pages. The native core is that of this installation."""
    folder = sources(tmp_path_factory.mktemp("pages") / "clone")
    for native in Path("adapters/native").glob("*.so"):
        shutil.copy2(native, folder / native)
    return folder


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", PAGES)
async def test_a_new_user_follows_the_page(page: str, clone: Path) -> None:
    folder = clone.parent / Path(page).stem
    await asyncio.to_thread(shutil.copytree, clone, folder, symlinks=True)
    process = await asyncio.create_subprocess_exec(
        *prefix(), sys.executable, "-m", "tests.support.followed", page, str(folder),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()
    assert json.loads(out.decode().splitlines()[-1])["typed"]
    shutil.rmtree(folder)


@pytest.mark.plain
def test_ten_pages_are_followed() -> None:
    assert len(PAGES.keys() | IN_OWN_TESTS.keys()) >= 10
    assert all(Path(file).exists() for file in IN_OWN_TESTS.values())
