"""The process of a headless Chromium, which reaches loopback only."""

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.debian import binary

START_SECONDS = 300.0
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-default-apps", "--disable-extensions",
    "--mute-audio", "--remote-debugging-port=0", "--force-color-profile=srgb", "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)  # fmt: skip


@contextmanager
def chromium() -> Iterator[str]:
    """Start one. Yields the address of its DevTools."""
    program = binary("chromium", "chromium")
    with tempfile.TemporaryDirectory(prefix="headrace-chromium-", ignore_cleanup_errors=True) as folder:
        log = Path(folder) / "log"
        with log.open("wb") as output:
            command = [program, *FLAGS, f"--user-data-dir={folder}/profile", "about:blank"]
            process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            yield _address(Path(folder) / "profile/DevToolsActivePort", process, log)
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _address(written: Path, process: "subprocess.Popen[bytes]", log: Path) -> str:
    end = time.monotonic() + START_SECONDS
    while True:
        lines = written.read_text().splitlines() if written.exists() else []
        if len(lines) == 2:
            return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
        if process.poll() is not None or time.monotonic() > end:
            raise AssertionError(log.read_text(errors="replace")[-4000:])
        time.sleep(0.05)
