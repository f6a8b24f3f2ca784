"""Tests of the plain shelf that try what it refuses."""

import asyncio
import multiprocessing
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.deterministic import Refused, taken

ROOT = Path(__file__).parents[1]


def bound(port: int) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))


def connected(host: str) -> None:
    with socket.socket() as client:
        client.connect((host, 9))


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        (lambda: subprocess.run(["true"]), "starts a process: true"),
        (os.fork, "starts a process"),
        (lambda: os.posix_spawn("/bin/true", ["true"], {}), "starts a process"),
        (lambda: os.system("true"), "starts a process"),
        (lambda: os.execv("/bin/true", ["true"]), "starts a process"),
        (multiprocessing.get_context("fork").Process(target=int).start, "starts a process"),
        (multiprocessing.get_context("spawn").Process(target=int).start, "starts a process"),
        (lambda: time.sleep(0.001), "sleeps 0.001 s"),
        (lambda: bound(9), "listens on the fixed port 9"),
        (lambda: connected("192.0.2.1"), "connects to 192.0.2.1"),
        (lambda: socket.getaddrinfo("example.org", 80), "resolves the name 'example.org'"),
        (lambda: socket.gethostbyname("example.org"), "resolves the name 'example.org'"),
    ],
)
def test_the_plain_shelf_refuses(action: Callable[[], object], reason: str) -> None:
    with pytest.raises(Refused, match="of the plain shelf"):
        action()
    assert any(reason in refusal for refusal in taken()), reason


async def test_a_process_of_asyncio_is_refused() -> None:
    with pytest.raises(Refused):
        await asyncio.create_subprocess_exec("true")
    assert taken()


@pytest.mark.realtime
async def test_a_sleep_on_the_real_clock_is_refused() -> None:
    with pytest.raises(Refused):
        await asyncio.sleep(0.02)
    assert taken() == ["sleeps 0.02 s"]


async def test_a_wait_that_the_clock_of_the_wall_ends_is_refused() -> None:
    """A thread holds up the virtual clock, which then follows the real one."""
    released = threading.Event()
    waiting = asyncio.create_task(asyncio.to_thread(released.wait))
    await asyncio.sleep(0.2)
    released.set()
    await waiting
    (refusal,) = taken()
    assert "clock of the wall" in refusal


async def test_virtual_time_passes_at_once() -> None:
    began = time.monotonic()
    await asyncio.sleep(100_000)
    assert time.monotonic() - began < 50


def test_a_test_may_listen_on_free_ports_and_join_them() -> None:
    bound(0)
    with socket.socket() as listener, socket.socket() as client:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        client.connect(listener.getsockname())
        bound_again = listener.getsockname()[1]
    bound(bound_again)
    time.sleep(0)
    assert socket.getaddrinfo("127.0.0.1", 80)
    assert taken() == []


def test_random_numbers_depend_on_the_name_of_the_test() -> None:
    drawn = (random.random(), random.Random().random(), random.Random().random())
    assert [round(number, 4) for number in drawn] == [0.7069, 0.7862, 0.5657]


@pytest.mark.processes
@pytest.mark.parametrize(
    "body",
    ["subprocess.run(['true'])", "time.sleep(0.2)", "contextlib.suppress(Exception).__enter__(); hidden()"],
)
def test_a_refusal_fails_the_test_even_if_its_error_is_caught(tmp_path: Path, body: str) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["tests.support.shelves", "tests.support.deterministic"]\n')
    (tmp_path / "test_planted.py").write_text(
        "import contextlib, subprocess, time\n\n"
        "def hidden():\n"
        "    with contextlib.suppress(Exception):\n"
        "        subprocess.run(['true'])\n\n"
        f"def test_planted():\n    {body}\n\n"
        "def test_after_it():\n    pass\n"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "a test of the plain shelf" in done.stdout
