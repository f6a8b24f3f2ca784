"""Tables and the progress of long commands: on a real terminal, and without one."""

import os
import pty
import subprocess
import sys

import pytest
from rich.table import Table

from gateway.terminal import counted, show

PROGRAM = """
import time
from gateway.terminal import counted
for number in counted(range(1234), "rows"):
    if number == 1233: time.sleep(0.3)
    print(number)
"""


def read_all(reader: int) -> bytes:
    """All that is written to a terminal, until its other end is closed."""
    shown = b""
    try:
        while piece := os.read(reader, 65536):
            shown += piece
    except OSError:
        pass
    finally:
        os.close(reader)
    return shown


def on_a_terminal(program: str) -> tuple[bytes, list[bytes]]:
    """What a program shows on its terminal, and the words of its output."""
    reader, writer = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=writer)
    os.close(writer)
    shown = read_all(reader)
    output = process.communicate(timeout=300)[0]
    assert process.returncode == 0
    return shown, output.split()


@pytest.mark.processes
def test_a_terminal_shows_the_count_and_the_output_is_unchanged() -> None:
    shown, output = on_a_terminal(PROGRAM)
    assert b" rows" in shown
    assert output == [str(number).encode() for number in range(1234)]


@pytest.mark.processes
def test_without_a_terminal_nothing_is_written() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True, timeout=300)
    assert done.stderr == b""
    assert len(done.stdout.split()) == 1234


CHECK = """
import time
from gateway.terminal import measured, working
with working("reads [file]"): time.sleep(0.3)
for number in measured(range(7), "tests", 7):
    time.sleep(0.1)
    print(number)
"""


@pytest.mark.processes
def test_a_terminal_shows_parts_and_shares() -> None:
    shown, output = on_a_terminal(CHECK)
    assert b"reads [file]" in shown
    assert b"/7" in shown
    assert output == [b"0", b"1", b"2", b"3", b"4", b"5", b"6"]
    silent = subprocess.run([sys.executable, "-c", CHECK], capture_output=True, check=True, timeout=300)
    assert silent.stderr == b""


def test_items_pass_as_they_come(capsys: pytest.CaptureFixture[str]) -> None:
    taken: list[int] = []
    passing = counted(iter([1, 2, 3]), "rows")
    taken.append(next(passing))
    assert taken == [1]
    assert list(passing) == [2, 3]
    assert capsys.readouterr().err == ""


def test_a_table_in_a_pipe_is_as_wide_as_it_needs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table("id", "detail", box=None)
    table.add_row("x" * 90, "y" * 5000)
    monkeypatch.delenv("COLUMNS", raising=False)
    show(table)
    assert capsys.readouterr().out.splitlines()[1].split() == ["x" * 90, "y" * 5000]
    monkeypatch.setenv("COLUMNS", "80")
    show(table)
    assert all(len(line) <= 80 for line in capsys.readouterr().out.splitlines())
