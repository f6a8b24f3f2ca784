"""The sentence that names the command for an extra, and that nothing names an index for it."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from config import default_path
from config.extras import extras_of
from config.installing import installing
from config.loader import read

EXTRAS = tomllib.loads(Path("pyproject.toml").read_text())["project"]["optional-dependencies"]
CALL = re.compile(r"installing\((?:'|\")([\w-]+)")
FROM_AN_INDEX = re.compile(r"pip install (?!.*(--no-index|--find-links)).*\bheadrace\[")


def _texts() -> list[Path]:
    folders = ("adapters", "config", "deploy", "docs", "gateway", "loadtests", "policies", "runtimes")
    files = [path for folder in folders for path in Path(folder).rglob("*") if path.suffix in (".py", ".md", ".yaml")]
    return [*files, *Path().glob("*.md"), Path("Makefile")]


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout


def test_the_sentence_has_both_ways_and_no_index() -> None:
    sentence = installing("postgres", "redis")
    assert "--editable '.[postgres,redis]'" in sentence
    assert "'./WHEEL[postgres,redis]'" in sentence
    assert not FROM_AN_INDEX.search(sentence)


def test_nothing_installs_the_distribution_from_an_index() -> None:
    texts = _texts()
    assert len(texts) > 500
    assert [str(path) for path in texts if FROM_AN_INDEX.search(path.read_text())] == []


def test_every_named_extra_exists() -> None:
    named = {name for path in _texts() if path.suffix == ".py" for name in CALL.findall(path.read_text())}
    assert len(named) > 8
    assert named <= EXTRAS.keys()
    default = read(default_path()).config
    assert default is not None
    assert extras_of(default) <= EXTRAS.keys()


@pytest.mark.processes
def test_make_builds_a_wheel_that_pip_installs_with_an_extra(tmp_path: Path) -> None:
    before = _git("status", "--porcelain")
    sources = re.search(r"^WHEEL := (.*)$", Path("Makefile").read_text(), re.M)
    assert sources is not None
    for name in ("Makefile", *sources[1].split()):
        (tmp_path / name).symlink_to(Path(name).resolve())
    subprocess.run(
        ["make", "wheel", f"PYTHON={sys.executable}"], cwd=tmp_path, check=True, capture_output=True, timeout=600
    )
    (wheel,) = (tmp_path / "dist").glob("headrace-*.whl")
    assert {"gateway/__main__.py", "config/headrace.yaml"} <= set(zipfile.ZipFile(wheel).namelist())
    assert _git("status", "--porcelain") == before
    into = ["--dry-run", "--no-deps", "--target", str(tmp_path / "to")]
    dry = [sys.executable, "-m", "pip", "install", *into, f"{wheel}[postgres]"]
    done = subprocess.run(dry, capture_output=True, text=True, timeout=600)
    assert "Would install headrace-" in done.stdout, done.stderr
