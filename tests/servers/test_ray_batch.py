"""`headrace batch run --ray` on a real Ray, against a real gateway.

Ray has a network of its own, as it listens on every address; a Unix socket leads from there to the gateway.
"""

import asyncio
import json
import os
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from adapters.http1.message import Response
from config.installing import installing
from loadtests.venvs import ensure
from tests.support.batches import batched, chat_line, jsonl
from tests.support.processes import command, gateway
from tests.support.upstreams import upstream, whole

pytestmark = pytest.mark.timeout(1800)
PROGRAM = Path(__file__).parent / "programs" / "through_socket.py"
PORT = 8000


async def forwarding(path: Path, host: str, port: int) -> asyncio.Server:
    """A Unix socket that leads to a TCP server."""

    async def passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(host, port)
        await asyncio.gather(passed(reader, back), passed(there, writer), return_exceptions=True)

    return await asyncio.start_unix_server(connected, path)


async def on_ray(venv: Path, socket: Path, key: str, *arguments: str) -> tuple[int, str]:
    """Run `headrace batch run --ray local` in the environment of Ray: its exit status and its messages."""
    packages = [str(Path(__file__).parents[2]), sysconfig.get_path("purelib")]
    packages += [path for path in sys.path if path.endswith("site-packages") and path not in packages]
    env = {
        **os.environ, "PYTHONPATH": os.pathsep.join(packages), "HEADRACE_API_KEY": key,
        "RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": "/tmp", "RAY_DISABLE_IMPORT_WARNING": "1",
    }  # fmt: skip
    python = str(venv / "bin" / "python")
    run = [
        python,
        "-m",
        "gateway",
        "batch",
        "run",
        "--ray",
        "local",
        "--against",
        f"http://127.0.0.1:{PORT}",
        *arguments,
    ]
    process = await asyncio.create_subprocess_exec(
        python, str(PROGRAM), str(socket), str(PORT), "--", *run, env=env,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


async def test_a_run_on_ray_has_one_line_for_each_line_and_continues(tmp_path: Path) -> None:
    venv = await asyncio.to_thread(ensure, "ray-data", ("ray[data]==2.60.0",))
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(jsonl([chat_line(str(i), f"text {i}") for i in range(300)]))
    async with upstream() as up, gateway(tmp_path, batched(up, tmp_path)) as g:
        key, refused = await g.key(), {"text 3", "text 4"}

        async def echo(body: dict[str, Any]) -> Response:
            content = body["messages"][0]["content"]
            return Response(400, [], b'{"error": {"message": "no"}}') if content in refused else whole(content)

        up.behaviour = echo
        host, _, port = g.url.removeprefix("http://").partition(":")
        async with await forwarding(tmp_path / "out.sock", host, int(port)):
            files = ("-i", str(source), "-o", str(target))
            code, printed = await on_ray(venv, tmp_path / "out.sock", key, *files)
            assert (code, "300/300 lines, 2 failed" in printed) == (1, True), printed
            assert len(up.received) == 300
            lines = [json.loads(line) for line in target.read_text().splitlines()]
            assert sorted(line["custom_id"] for line in lines) == sorted(map(str, range(300)))
            refused.clear()
            with target.open("ab") as file:
                file.write(b'{"torn')
            code, printed = await on_ray(venv, tmp_path / "out.sock", key, *files, "--resume")
            assert (code, "300/300 lines, 0 failed" in printed) == (0, True), printed
            assert len(up.received) == 302
        lines = [json.loads(line) for line in target.read_text().splitlines()]
        texts = {line["custom_id"]: line["response"]["body"]["choices"][0]["message"]["content"] for line in lines}
        assert len(lines) == 300
        assert texts == {str(i): f"text {i}" for i in range(300)}


async def test_ray_is_an_extra(tmp_path: Path) -> None:
    """The environment of the tests has no Ray."""
    source = tmp_path / "in.jsonl"
    source.write_bytes(jsonl([chat_line("a")]))
    code, _, status = await command("batch", "run", "-i", str(source), "-o", str(tmp_path / "x"), "--ray", "auto")
    assert (code, installing("ray") in status) == (2, True)
