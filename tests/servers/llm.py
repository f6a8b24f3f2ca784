"""Our LLM engine as its users run it alone: `with llm() as server`."""

import contextlib
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from loadtests.servers import Launch, StartError, child, log_tail
from runtimes.llm.weights.store import resolve

MODEL = "bundled:smollm2-135m-instruct"
ENCODER = "bundled:all-minilm-l6-v2"
NAME = "smollm2"
START_SECONDS = 600.0
"""Reading the weights takes seconds, and minutes where eight others do the same."""
LISTENING = re.compile(r"listening on http://(\S+:\d+)")
OPTIONS = ("--dtype", "float32", "--max-model-len", "2048", "--threads", "1")


@dataclass(frozen=True, slots=True)
class Llm:
    """A running one, which knows its model by the name `NAME`."""

    url: str
    pid: int


@contextlib.contextmanager
def llm(options: Sequence[str] = OPTIONS, model: str = MODEL) -> Iterator[Llm]:
    """Started on a free port, ready when its model is; stopped at the end. Its log is shown when the block fails."""
    resolve(model, progress=False)
    command = [sys.executable, "-m", "runtimes.llm", "--model", model, "--served-name", NAME, "--port", "0", *options]
    cores = ",".join(str(core) for core in sorted(os.sched_getaffinity(0)))
    with (
        tempfile.TemporaryDirectory(prefix="headrace-llm-") as folder,
        child("llm", Launch(command, env={}), cores, Path(folder)) as process,
    ):
        log = Path(folder) / "llm.log"
        end = time.monotonic() + START_SECONDS
        while (match := LISTENING.search(log.read_text(errors="replace"))) is None or not _ready(match[1]):
            if process.poll() is not None or time.monotonic() > end:
                raise StartError(f"the LLM engine is not ready:\n{log_tail('llm', Path(folder), 100)}")
            time.sleep(0.1)
        try:
            yield Llm(f"http://{match[1]}", process.pid)
        except BaseException as error:
            error.add_note(f"the LLM engine's log:\n{log_tail('llm', Path(folder), 60)}")
            raise


def _ready(address: str) -> bool:
    connection = HTTPConnection(address, timeout=300)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
