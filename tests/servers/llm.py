"""Our LLM engine as its users run it alone: `with llm() as server`."""

import contextlib
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtests.servers import Launch
from runtimes.llm.weights.store import resolve
from tests.servers.started import answers, watched

MODEL = "bundled:smollm2-135m-instruct"
ENCODER = "bundled:all-minilm-l6-v2"
NAME = "smollm2"
LISTENING = re.compile(r"listening on (http://\S+:(\d+))")
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
    with tempfile.TemporaryDirectory(prefix="headrace-llm-") as folder:
        log = Path(folder) / "llm.log"

        def listening() -> str:
            match = LISTENING.search(log.read_text(errors="replace"))
            return match[1] if match is not None and answers(int(match[2]), "/health") else ""

        with watched("llm", Launch(command, env={}), Path(folder), listening) as (pid, url):
            yield Llm(url, pid)
