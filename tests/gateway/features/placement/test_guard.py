"""The guard itself is a process: what it does to others is looked at from outside."""

import asyncio
import signal
import sys
from pathlib import Path

import psutil
import pytest

from gateway.features.placement import guard
from gateway.features.placement.guard import MAX_LINE, OutputLines
from tests.support.waiting import until


def logged(*chunks: bytes) -> list[str]:
    written: list[bytes] = []
    lines = OutputLines("runtime.x", written.append)
    for chunk in chunks:
        lines.feed(chunk)
    lines.close()
    return [line.decode().split(" runtime.x ")[1] for line in written]


def test_any_chunks_are_logged_line_by_line() -> None:
    assert logged(b"one\ntw", b"o\n\n", b"three") == ["one\n", "two\n", "three\n"]
    assert logged(b"10%\r20%\r\n100%") == ["10%\n", "20%\n", "100%\n"]


def test_a_line_can_forge_none_of_ours() -> None:
    assert logged(b"\x1b[31mred\x1b[0m\n") == ["red\n"]
    assert logged("a\x00b\x85c\u2028d\ttab\n".encode()) == ["a?b?c?d\ttab\n"]
    assert logged(b"\xff\xfe\n") == ["\ufffd\ufffd\n"]


def test_a_long_line_is_cut() -> None:
    lines = logged(b"x" * (2 * MAX_LINE), b"y\n")
    assert [len(line) - 1 for line in lines] == [MAX_LINE, MAX_LINE, 1]


async def start(
    script: str, *, stop: signal.Signals = signal.SIGTERM, seconds: float = 20
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", guard.__file__, "runtime.x", str(int(stop)), str(seconds), "--"),
        *("/bin/sh", "-c", script),
        stdin=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def line(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    async with asyncio.timeout(300):
        return (await process.stderr.readline()).decode().strip()


async def rest(process: asyncio.subprocess.Process) -> tuple[int, str]:
    """Its exit status, and its output until then."""
    assert process.stderr is not None
    async with asyncio.timeout(300):
        return await process.wait(), (await process.stderr.read()).decode()


@pytest.mark.processes
@pytest.mark.parametrize(("script", "status"), [("echo bye; exit 3", 3), ("kill -KILL $$", -9), ("kill -TERM $$", -15)])
async def test_it_ends_as_the_server_did(script: str, status: int) -> None:
    assert (await rest(await start(script)))[0] == status


@pytest.mark.processes
async def test_the_last_output_of_the_server_is_logged() -> None:
    status, output = await rest(
        await start("i=0; while [ $i -lt 500 ]; do i=$((i+1)); echo line $i; done; printf last")
    )
    assert status == 0
    assert [text.split(" runtime.x ")[1] for text in output.splitlines()] == [f"line {i + 1}" for i in range(500)] + [
        "last"
    ]


@pytest.mark.processes
async def test_the_signal_that_stops_it_can_be_another() -> None:
    process = await start(
        'trap "echo interrupted; exit 0" INT; echo up; while :; do sleep 0.05; done', stop=signal.SIGINT
    )
    assert (await line(process)).endswith("up")
    process.terminate()
    status, output = await rest(process)
    assert status == 0
    assert "interrupted" in output


@pytest.mark.processes
async def test_a_server_that_does_not_stop_is_killed_with_its_children(tmp_path: Path) -> None:
    deaf = 'trap "" TERM; setsid /bin/sh -c "trap \\"\\" TERM; echo deep; while :; do sleep 1; done" & wait; wait'
    process = await start(deaf, seconds=0.2)
    assert (await line(process)).endswith("deep")
    everyone = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    assert (await rest(process))[0] == -9
    await all_gone(everyone)


@pytest.mark.processes
async def test_processes_that_a_server_leaves_are_ended(tmp_path: Path) -> None:
    written = tmp_path / "pid"
    leaves = f"setsid /bin/sh -c 'echo $$ >{written}; exec sleep 1000' & while [ ! -s {written} ]; do sleep 0.02; done"
    status, _ = await rest(await start(leaves))
    assert status == 0
    assert not psutil.pid_exists(int(written.read_text()))


@pytest.mark.processes
async def test_the_server_ends_with_the_process_that_started_it() -> None:
    process = await start("echo up; exec sleep 1000")
    assert (await line(process)).endswith("up")
    everyone = psutil.Process(process.pid).children(recursive=True)
    assert process.stdin is not None
    process.stdin.close()
    assert (await rest(process))[0] == -15
    await all_gone(everyone)


@pytest.mark.processes
async def test_its_own_end_by_force_is_the_servers() -> None:
    process = await start("echo up; exec sleep 1000")
    assert (await line(process)).endswith("up")
    everyone = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    assert (await rest(process))[0] == -9
    await all_gone(everyone)


@pytest.mark.processes
async def test_children_that_others_left_are_no_zombies() -> None:
    script = "for i in 1 2 3; do /bin/sh -c '/bin/sh -c \"exit 0\" &'; done; sleep 0.3; echo up; exec sleep 1000"
    process = await start(script)
    assert (await line(process)).endswith("up")
    guard = psutil.Process(process.pid)
    await until(lambda: [one.name() for one in guard.children(recursive=True)] == ["sleep"])
    process.terminate()
    await rest(process)


async def all_gone(processes: list[psutil.Process]) -> None:
    assert processes
    _, alive = await asyncio.to_thread(psutil.wait_procs, processes, 60)
    assert alive == []
