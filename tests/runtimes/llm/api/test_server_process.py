"""`python -m runtimes.llm` as a process, with the real model: start, answer, leave, drain, die."""

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from openai import AsyncOpenAI

from config.installing import installing
from runtimes.llm.__main__ import main

pytestmark = pytest.mark.processes
QUESTION: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]


def command(model: Path | str, *options: str) -> list[str]:
    small = ["--kv-cache", "64MiB", "--threads", "1", "--dtype", "float32", "--max-model-len", "512"]
    return [sys.executable, "-m", "runtimes.llm", "--model", str(model), "--served-name", "smol", *small, *options]


@pytest.fixture(scope="module")
def server(bundled_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Its socket. Started once: loading takes seconds."""
    socket = tmp_path_factory.mktemp("llm") / "llm.sock"
    log = socket.with_suffix(".log")
    with log.open("w") as stderr:
        options = ["--socket", str(socket), "--port", "0", "--max-held", "48MiB"]
        process = subprocess.Popen(command(bundled_model, *options), stderr=stderr)
    try:
        asyncio.run(until_healthy(socket, process))
        yield socket
    finally:
        process.terminate()
        status = process.wait(timeout=300)
    assert status == 0, log.read_text()
    # After all requests, also those of clients that disconnected.
    assert re.search(r"idle: all \d+ pages of the KV cache are free or cached", log.read_text())
    assert not socket.exists()


async def until_healthy(socket: Path, process: subprocess.Popen[bytes]) -> None:
    """The server listens at once, reports that it is loading, then that it is ready."""
    async with asyncio.timeout(300), http(socket) as session:
        while process.poll() is None:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get("/health") as response:
                    if response.status == 200:
                        return
                    assert (response.status, await response.json()) == (503, {"status": "loading"})
            await asyncio.sleep(0.05)
        raise AssertionError(f"it ended with status {process.returncode}")


def http(socket: Path) -> aiohttp.ClientSession:
    return aiohttp.ClientSession("http://llm", connector=aiohttp.UnixConnector(str(socket)))


@pytest.fixture
async def client(server: Path) -> AsyncIterator[AsyncOpenAI]:
    """It listens on TCP too, on a port that its log names."""
    [url] = re.findall(r"listening on (http://127\.0\.0\.1:\d+)", server.with_suffix(".log").read_text())
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client


# ── the real model ────────────────────────────────────────────────────────────────────────────────────


async def test_it_knows_the_capital_of_france(client: AsyncOpenAI) -> None:
    whole = await client.chat.completions.create(model="smol", messages=QUESTION, temperature=0, max_tokens=20)
    [choice] = whole.choices
    assert (choice.message.content, choice.finish_reason) == ("The capital of France is Paris.", "stop")
    stream = await client.chat.completions.create(
        model="smol", messages=QUESTION, temperature=0, max_tokens=20, stream=True,
        stream_options={"include_usage": True},
    )  # fmt: skip
    chunks = [chunk async for chunk in stream]
    assert "".join([chunk.choices[0].delta.content or "" for chunk in chunks[:-1]]) == choice.message.content
    assert whole.usage is not None
    assert (usage := chunks[-1].usage) is not None
    assert usage.total_tokens == whole.usage.total_tokens
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == (usage.prompt_tokens - 1) // 16 * 16


# ── the process ───────────────────────────────────────────────────────────────────────────────────────


def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=300, **options)


def test_a_model_that_is_not_there_is_one_line_and_status_1(tmp_path: Path) -> None:
    ended = run("-m", "runtimes.llm", "--model", str(tmp_path / "none.gguf"), "--socket", str(tmp_path / "s"))
    assert ended.returncode == 1
    *_, last = ended.stderr.splitlines()
    assert "cannot load" in last
    assert "none.gguf" in last
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("length", "options", "message"),
    [
        (0, [], r"is not a GGUF file: it is empty"),
        (4_000_000, [], r"is cut short: tensor \S+ lies beyond its end"),
        (
            None,
            ["--kv-cache", "100TiB"],
            r"the KV cache takes 100 TiB and [\d.]+ .iB of memory are free: lower kv_cache",
        ),
    ],
    ids=["empty", "cut short", "too large a cache"],
)
def test_a_model_that_cannot_be_loaded_is_one_line_and_status_1(
    bundled_model: Path, tmp_path: Path, length: int | None, options: list[str], message: str
) -> None:
    model = bundled_model
    if length is not None:
        model = tmp_path / "m.gguf"
        with bundled_model.open("rb") as file:
            model.write_bytes(file.read(length))
    ended = run(*command(model, "--socket", str(tmp_path / "s"), *options)[1:])
    assert ended.returncode == 1
    [last] = ended.stderr.splitlines()[-1:]
    assert re.search(message, last)
    assert "Traceback" not in ended.stderr


def test_an_address_that_is_taken_is_one_line_and_status_1(tmp_path: Path) -> None:
    ended = run("-m", "runtimes.llm", "--model", "x.gguf", "--socket", str(tmp_path / "no-such-folder" / "s"))
    assert ended.returncode == 1
    assert "cannot listen" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_signal_stops_it_while_it_loads(bundled_model: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        command(bundled_model, "--socket", str(tmp_path / "s")), stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    with process:
        assert "listening" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=300) == 0


def test_it_goes_when_its_parent_does(bundled_model: Path, tmp_path: Path) -> None:
    reads, writes = os.pipe()
    process = subprocess.Popen(
        command(bundled_model, "--socket", str(tmp_path / "s"), "--exit-with-parent"),
        stdin=reads, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    os.close(reads)
    assert process.stderr is not None
    with process:
        assert "listening" in process.stderr.readline()
        os.close(writes)
        assert process.wait(timeout=300) == 0


def test_a_parent_must_be_watchable(tmp_path: Path) -> None:
    ended = run(*command("x.gguf", "--socket", str(tmp_path / "s"), "--exit-with-parent")[1:], stdin=subprocess.DEVNULL)
    assert ended.returncode == 1
    assert "stdin" in ended.stderr


@pytest.mark.parametrize("missing", ["torch", "tokenizers"])
def test_without_the_extra_the_error_names_the_package(missing: str, tmp_path: Path) -> None:
    hidden = f"import sys; sys.modules[{missing!r}] = None; sys.argv[1:] = ['--model', 'm', '--port', '0']\n"
    program = hidden + "import runpy; runpy.run_module('runtimes.llm', run_name='__main__')"
    ended = run("-c", program)
    assert ended.returncode == 1
    assert ended.stderr == f"{missing} is not installed: {installing('llm')}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--port", "1"], "--model"),
        (["--model", "m"], "--socket PATH or --port N"),
        (["--model", "m", "--port", "0", "--threads", "0"], "1 or more"),
        (["--model", "m", "--port", "0", "--kv-cache", "much"], "expected a size"),
        (["--model", "m", "--port", "70000"], "--port"),
        (["--model", "m", "--port", "0", "--dtype", "int4"], "--dtype"),
        (["--model", "m", "--port", "0", "--weights", "int3"], "--weights"),
        (["--model", "m", "--port", "0", "--max-held", "47MiB"], "--max-held: the largest body takes 48MiB"),
    ],
)
def test_a_wrong_command_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_request_bodies_hold_at_most_max_held(server: Path) -> None:
    head = "POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {16 << 20}\r\nExpect: 100-continue\r\n\r\n"
    replies = []
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.connect(str(server))
            client.sendall(head.encode())
            replies.append(client.recv(12))
    assert replies == [b"HTTP/1.1 100", b"HTTP/1.1 503"]


def test_it_ends_while_a_grammar_compiles(bundled_model: Path, tmp_path: Path) -> None:
    """The server's workers end with it."""
    socket = tmp_path / "llm.sock"
    process = subprocess.Popen(command(bundled_model, "--socket", str(socket), "--drain-seconds", "1"))
    try:
        workers = asyncio.run(_end_while_compiling(socket, process))
        assert process.wait(20) == 0
        assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
    finally:
        process.kill()
        process.wait()


async def _end_while_compiling(socket: Path, process: subprocess.Popen[bytes]) -> list[int]:
    """The processes that it had."""
    await until_healthy(socket, process)
    schema = {"type": "integer", "multipleOf": 9999991}
    body = {"model": "smol", "prompt": "a", "structured_outputs": {"json": schema}}
    async with http(socket) as session:
        pending = asyncio.ensure_future(session.post("/v1/completions", json=body))
        async with asyncio.timeout(300):
            while not (workers := _children(process.pid)):
                await asyncio.sleep(0.01)
        process.terminate()
        await asyncio.gather(pending, return_exceptions=True)
    return workers


def _children(pid: int) -> list[int]:
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for children in lists for child in children.read_text().split()]
