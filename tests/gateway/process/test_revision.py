"""The revision of a configuration in a Git checkout, a volume of a ConfigMap, and a plain folder."""

import shutil
import subprocess
from pathlib import Path

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admin.lifecycle import revision_of, version_at
from tests.support.processes import gateway

CONFIGURATION = {
    "pools": [{"name": "main", "endpoints": ["http://127.0.0.1:9"], "probe": None}],
    "models": [{"name": "chat", "routes": [{"to": "main"}]}],
    "tenants": [{"name": "acme", "models": ["chat"]}],
}


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    (folder / "eu").mkdir(parents=True)
    (folder / "eu" / "headrace.yaml").write_text("version: 1\n")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


@pytest.mark.processes
def test_a_file_of_a_checkout_has_its_commit(checkout: Path) -> None:
    file, commit = checkout / "eu" / "headrace.yaml", git(checkout, "rev-parse", "HEAD")
    assert version_at(file) == f"git:{commit[:12]}"
    git(checkout, "pack-refs", "--all")
    assert version_at(file) == f"git:{commit[:12]}"
    git(checkout, "checkout", "-q", "--detach")
    assert version_at(file) == f"git:{commit[:12]}"


@pytest.mark.processes
def test_a_worktree_has_its_own_commit(checkout: Path) -> None:
    git(checkout, "worktree", "add", "-qb", "next", str(checkout.parent / "next"))
    other = checkout.parent / "next" / "eu" / "headrace.yaml"
    other.write_text("version: 1\n\n")
    git(other.parent, "commit", "-qam", "second")
    commit = git(other.parent, "rev-parse", "HEAD")
    assert version_at(other) == f"git:{commit[:12]}" != version_at(checkout / "eu" / "headrace.yaml")


@pytest.mark.processes
def test_a_broken_checkout_and_a_plain_folder_have_no_version(checkout: Path, tmp_path: Path) -> None:
    (checkout / ".git" / "HEAD").write_bytes(b"\xff\xfe")
    assert version_at(checkout / "eu" / "headrace.yaml") == ""
    shutil.rmtree(checkout / ".git")
    assert version_at(tmp_path / "missing" / "headrace.yaml") == ""


def test_a_volume_of_a_configmap_has_its_folder(tmp_path: Path) -> None:
    (tmp_path / "..2026_11_24_00_00_00.1").mkdir()
    (tmp_path / "..data").symlink_to("..2026_11_24_00_00_00.1")
    assert version_at(tmp_path / "headrace.yaml") == "configmap:2026_11_24_00_00_00.1"


@given(st.text(), st.text())
def test_one_revision_is_one_text(first: str, second: str) -> None:
    assert (revision_of(first) == revision_of(second)) is (first == second)


@pytest.mark.processes
@pytest.mark.parametrize("workers", [1, 2])
async def test_a_gateway_reports_the_revision_in_force(tmp_path: Path, workers: int) -> None:
    async with gateway(tmp_path, {**CONFIGURATION, "workers": workers}) as running:
        path = tmp_path / "headrace.yaml"
        before = revision_of(path.read_text())
        await running.until(f"s['configuration']['revision'] == {before!r}")
        path.write_text(path.read_text() + "# changed\n")
        after = revision_of(path.read_text())
        await running.until(f"s['configuration']['revision'] == {after!r}")
        path.write_text("nonsense: true\n")
        state = await running.until("s['configuration']['last_error']")
        assert state["configuration"]["revision"] == after
        async with aiohttp.ClientSession() as http, http.get(f"{running.admin}/metrics") as response:
            page = await response.text()
        assert f'headrace_config_info{{revision="{after}",version=""}} 1.0' in page
        assert "headrace_config_refused 1.0" in page
