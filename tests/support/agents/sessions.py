"""A run of an agent on a task: a home and a folder of its own, nothing else of this machine's settings."""

import asyncio
import contextlib
import os
import secrets
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image

from tests.support.agents.agents import Start
from tests.support.agents.installed import Installed
from tests.support.agents.model import COPY, FACTS, PICTURE, SAW

SECONDS = 600.0
PLAIN, THINKING, SEEING = "any-model", "thinking-model", "seeing-model"
SEES = "seeing"
"""A part of the names of models that see. Qwen Code sends pictures only to models whose names it knows."""
NIGHTLY = ("cline", "continue", "langchain-openai", "langchain-responses", "langchain-anthropic")
"""Agents that only nightly tests run, as they have many packages."""
MODELS: Mapping[str, Sequence[str]] = {
    "claude-code": (PLAIN, THINKING, SEEING, "claude-sonnet-4-6"),
    "claude-code-bedrock": (PLAIN, THINKING, SEEING),
    "claude-code-vertex": (PLAIN, THINKING, SEEING),
    "codex": (PLAIN, THINKING, SEEING, "gpt-5.5", "gpt-6-sol"),
    "codex-openai": (PLAIN,),
    "opencode": (PLAIN, THINKING, SEEING),
    "gemini-cli": (PLAIN, THINKING, SEEING, "gemini-3-pro-preview"),
    "qwen-code": (PLAIN, THINKING, "qwen3-vl-seeing"),
    "ai-sdk-openai": (PLAIN, THINKING, SEEING),
    "ai-sdk-openai-chat": (PLAIN, SEEING),
    "ai-sdk-openai-compatible": (PLAIN, THINKING, SEEING),
    "ai-sdk-anthropic": (PLAIN, THINKING, SEEING),
    "aider": (PLAIN, THINKING),
    **dict.fromkeys(NIGHTLY, (PLAIN,)),
}
"""The models of each agent's sessions. Agents treat the names of models that they know in ways of their own."""


def configuration(url: str) -> dict[str, Any]:
    """A gateway that gives every model's name to a server."""
    return {
        "auth": {"demo_key": True},
        "pools": [{"name": "up", "endpoints": [url]}],
        "models": [{"name": "*", "routes": [{"to": "up"}]}],
        "stored_responses": {"store": "default"},
        "tenants": [{"name": "demo", "models": ["*"]}],
    }


def picture() -> bytes:
    """A small PNG."""
    out = BytesIO()
    Image.new("RGB", (64, 64), (200, 10, 10)).save(out, "PNG")
    return out.getvalue()


@dataclass(frozen=True)
class Ended:
    """An agent that has ended."""

    status: int
    output: str
    errors: str


class Work:
    """The folder of a task: a file with a secret word, and a picture."""

    def __init__(self, parent: Path) -> None:
        self.folder, self.home, self.temporary = parent / "project", parent / "home", parent / "tmp"
        self.word = secrets.token_hex(6)
        for folder in (self.folder, self.home, self.temporary):
            folder.mkdir()
        (self.folder / FACTS).write_text(f"The secret word: {self.word}\n")
        (self.folder / PICTURE).write_bytes(picture())

    def assert_done(self, ended: Ended, model: str) -> None:
        """The agent has run every call and printed the last answer."""
        answer = SAW if SEES in model else f"The word is {self.word}."
        assert (ended.status, answer in ended.output) == (0, True), ended
        if SEES not in model:
            assert self.word in (self.folder / COPY).read_text()

    def _processes(self) -> Iterator[int]:
        """The agent and all that it started, servers in the background too: they have the home of this task."""
        home = f"HOME={self.home}".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if home in (folder / "environ").read_bytes().split(b"\0"):
                    yield int(folder.name)

    async def run(self, start: Start, installed: Installed) -> Ended:
        """Run an agent to its end, at most `SECONDS`, and then end all that it started."""
        for name, text in start.files.items():
            file = self.home / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        path = f"{installed.programs}:{os.environ['PATH']}"
        variables = {"PATH": path, "HOME": str(self.home), "TMPDIR": str(self.temporary), "LANG": "C.UTF-8"}
        places = {"programs": installed.programs, "home": self.home}
        process = await asyncio.create_subprocess_exec(
            "env", *(word.format(**places) if word.startswith("{") else word for word in start.command),
            cwd=self.folder, env={**variables, **start.variables}, stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        try:
            async with asyncio.timeout(SECONDS):
                output, errors = await process.communicate()
        finally:
            for pid in self._processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await process.wait()
        assert process.returncode is not None
        return Ended(process.returncode, output.decode(), errors.decode())
