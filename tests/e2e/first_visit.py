"""Times the way of a new user: `python -m tests.e2e.first_visit`.

Clones this repository, runs `make serve` in the clone and opens the console in a real browser: a request, its cost, the
reasons of its route. The clone has the packages of the environment that runs this, so the times are those after an
installation. The default ports must be free, as in `unshare --net sh -c 'ip link set lo up; …'`.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

import aiohttp

from tests.support.browsing.chromium import chromium
from tests.support.browsing.page import Page, page

ROOT = Path(__file__).parents[2]
CONSOLE = "http://127.0.0.1:8082/console/"


class Stopwatch:
    """Prints the seconds of each part."""

    def __init__(self) -> None:
        self._begun = self._last = time.monotonic()

    def lap(self, part: str) -> None:
        """A part has ended."""
        now = time.monotonic()
        print(f"{part:45} {now - self._last:6.1f} s, {now - self._begun:6.1f} s from the begin", flush=True)
        self._last = now


def clone(folder: Path) -> Path:
    """A clone with the packages of this environment."""
    made = folder / "headrace"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(made)], check=True)
    environment = made / ".venv"
    venv.create(environment, with_pip=False)
    packages = next(environment.glob("lib/python*/site-packages"))
    (packages / "00_clone.pth").write_text(f"{made}\n")
    (packages / "zz_installed.pth").write_text(f"{Path(aiohttp.__file__).parents[1]}\n")
    program = (Path(sys.executable).parent / "headrace").read_text().partition("\n")[2]
    target = environment / "bin" / "headrace"
    target.write_text(f"#!{environment}/bin/python\n{program}")
    target.chmod(0o755)
    (environment / ".serve").touch()
    return made


async def until_open() -> None:
    """Wait until the console answers."""
    async with asyncio.timeout(600), aiohttp.ClientSession() as http:
        while True:
            try:
                async with http.get(CONSOLE) as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientError:
                await asyncio.sleep(0.1)


async def visit(shown: Page, watch: Stopwatch) -> None:
    """From the first screen to the reasons of a request."""
    await shown.goto(CONSOLE)
    await shown.shows("The demo key")
    watch.lap("the console shows a key")
    refused = 0
    await shown.click("Send", "button")
    ended = "document.body.innerText.includes('attempt') || !!document.querySelector('.notice.bad')"
    await shown.until(ended)
    while "attempt" not in await shown.text():
        refused += 1
        await asyncio.sleep(1)
        await shown.click("Send", "button")
        await shown.until(ended)
    await shown.until("/[0-9] usd/.test(document.querySelector('main').innerText)")
    watch.lap(f"an answer with its cost, {refused} sends refused")
    await shown.click("Why it went there")
    await shown.shows("Pools in order")
    watch.lap("the reasons of its route")


async def main() -> None:
    """Clone, serve, visit."""
    with tempfile.TemporaryDirectory(prefix="headrace-visit-") as name, chromium() as address:
        watch = Stopwatch()
        folder = await asyncio.to_thread(clone, Path(name))
        watch.lap("git clone")
        server = await asyncio.create_subprocess_exec("make", "serve", cwd=folder, start_new_session=True)
        try:
            await until_open()
            watch.lap("make serve: the console answers")
            async with page(address) as shown:
                await visit(shown, watch)
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            await server.wait()
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    asyncio.run(main())
