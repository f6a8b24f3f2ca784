"""The limit of open files, in processes of their own."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes

CODE = """
import logging, resource
logging.basicConfig(format="%(message)s")
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
from adapters.process import clients_that_fit, raise_limit
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
