import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.process import INHERITED, INHERITED_PREFIXES, TemporaryFolder, drop_unlisted, inherited, sweep
from tests.support.variables import NEEDED, SECRETS

HOLD = """
import sys
from adapters.process import TemporaryFolder
folder = TemporaryFolder()
print(folder.name, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield tmp_path
    tempfile.tempdir = None


def holder() -> "tuple[subprocess.Popen[str], Path]":
    """A process with a folder of its own."""
    process = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def end(process: "subprocess.Popen[str]", number: int | None = None) -> None:
    if number is not None:
        process.send_signal(number)
    process.communicate(timeout=300)


@pytest.mark.processes
def test_folders_of_a_killed_process_are_removed_and_those_in_use_stay(temporary: Path) -> None:
    killed, left = holder()
    (left / "model").mkdir()
    (left / "model/weights").write_bytes(b"x")
    alive, in_use = holder()
    end(killed, signal.SIGKILL)
    assert left.exists()
    assert sweep() == 1
    assert set(temporary.iterdir()) == {in_use}
    end(alive)
    assert list(temporary.iterdir()) == []


def test_a_folder_in_use_by_this_process_stays() -> None:
    folder = TemporaryFolder()
    assert sweep() == 0
    folder.cleanup()
    assert not Path(folder.name).exists()


def test_other_folders_stay(temporary: Path) -> None:
    target = temporary / "precious"
    target.mkdir()
    (target / ".owner").touch()
    (temporary / "headrace-link").symlink_to(target)
    (temporary / "headrace-file").touch()
    (temporary / "headrace-made-by-hand").mkdir()
    before = set(temporary.iterdir())
    assert sweep() == 0
    assert set(temporary.iterdir()) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's folder")
def test_another_users_folder_stays(temporary: Path) -> None:
    other = temporary / "headrace-theirs"
    other.mkdir()
    (other / ".owner").touch()
    os.chown(other, 12345, 12345)
    assert sweep() == 0
    assert other.exists()


# Variables that programs inherit: what a machine needs, and no name of a credential.

PARTS = st.sampled_from(["KEY", "API_KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIALS", "AUTH", "key", "Token"])
HEADS = st.sampled_from([*INHERITED_PREFIXES, "MY_", "", "OPENAI_"])
TAILS = st.sampled_from(["", "_2", "_FILE", "_VALUE"])


def test_needed_variables_are_inherited_and_credentials_are_not() -> None:
    assert inherited({**NEEDED, **SECRETS}) == NEEDED


@given(HEADS, PARTS, TAILS, st.text(max_size=5))
def test_no_name_of_a_credential_is_inherited(head: str, part: str, tail: str, value: str) -> None:
    name = head + ("" if head.endswith("_") or not head else "_") + part + tail
    assert inherited({name: value}) == {}


@given(st.sampled_from(sorted(INHERITED)), st.sampled_from(["http", "https", "socks5"]), st.text("abc:%1", min_size=1))
def test_no_url_with_a_user_is_inherited(name: str, scheme: str, user: str) -> None:
    assert inherited({name: f"{scheme}://{user}@proxy:3128/"}) == {}


@given(
    st.dictionaries(st.text("AKEY_", min_size=1, max_size=6) | st.sampled_from(sorted(INHERITED)), st.text(max_size=3))
)
def test_only_listed_and_passed_variables_remain(variables: dict[str, str]) -> None:
    remaining = dict(variables)
    drop_unlisted(remaining, ["A_*", "KEY"])
    passed = {name: value for name, value in variables.items() if name.startswith("A_") or name == "KEY"}
    assert remaining == {**inherited(variables), **passed}


# The limit of open files, in processes of their own.

pytestmark = pytest.mark.processes

CODE = """
import logging, resource
logging.basicConfig(format="%(message)s")
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
from adapters.open_files import clients_that_fit, raise_limit
print(raise_limit(), resource.getrlimit(resource.RLIMIT_NOFILE)[0], clients_that_fit({required}, {each}))
"""


def run(soft: int, hard: int, required: int, each: int = 2) -> tuple[str, str]:
    code = CODE.format(soft=soft, hard=hard, required=required, each=each)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    return done.stdout.strip(), done.stderr


def test_the_soft_limit_is_raised() -> None:
    assert run(100, 500, 100) == ("500 500 100", "")


@pytest.mark.parametrize(("hard", "each", "fit"), [(428, 2, 150), (428, 1, 300), (428, 4, 75), (129, 2, 1)])
def test_connections_are_capped_below_a_limit_that_is_too_low(hard: int, each: int, fit: int) -> None:
    limits, log = run(100, hard, 10_000, each)
    assert limits == f"{hard} {hard} {fit}"
    assert f"at most {fit} clients at once instead of 10000" in log
