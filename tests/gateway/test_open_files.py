"""The limit of open files, in processes of their own."""

import subprocess
import sys

CODE = """
import logging, resource
logging.basicConfig(format="%(message)s")
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
from gateway.open_files import raise_limit
print(raise_limit({connections}), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def run(soft: int, hard: int, connections: int) -> tuple[str, str]:
    code = CODE.format(soft=soft, hard=hard, connections=connections)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip(), done.stderr


def test_the_soft_limit_is_raised() -> None:
    assert run(100, 500, 100) == ("500 500", "")


def test_a_limit_that_is_too_low_is_logged_with_what_fits() -> None:
    limits, log = run(200, 428, 10_000)
    assert limits == "428 428"
    assert "lower http.max_connections to 150" in log
