"""The progress of long commands: on a real terminal, and without one."""

import os
import pty
import subprocess
import sys

import pytest

from gateway.progress import counted

PROGRAM = """
import time
from gateway.progress import counted
for number in counted(range(1234), "rows"):
    if number == 1233: time.sleep(0.3)
    print(number)
"""


def test_a_terminal_shows_the_count_and_the_output_is_unchanged() -> None:
    reader, writer = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=writer)
    os.close(writer)
    shown = b""
    try:
        while piece := os.read(reader, 65536):
            shown += piece
    except OSError:  # the other end of a terminal is closed
        pass
    output = process.communicate(timeout=300)[0]
    os.close(reader)
    assert process.returncode == 0
    assert b" rows" in shown
    assert output.split() == [str(number).encode() for number in range(1234)]


def test_without_a_terminal_nothing_is_written() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True, timeout=300)
    assert done.stderr == b""
    assert len(done.stdout.split()) == 1234


def test_items_pass_as_they_come(capsys: pytest.CaptureFixture[str]) -> None:
    taken: list[int] = []
    passing = counted(iter([1, 2, 3]), "rows")
    taken.append(next(passing))
    assert taken == [1]
    assert list(passing) == [2, 3]
    assert capsys.readouterr().err == ""
