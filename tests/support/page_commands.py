"""The commands of a page, in a shell that runs them as they stand."""

import asyncio
import os
import re
import sys
from pathlib import Path
from typing import NamedTuple

from tests.support.debian import binary

_ROOT = Path(__file__).parents[2]
_TOOLS = {"jq": "jq", "sqlite3": "sqlite3"}
"""Programs that commands of pages use, with their Debian packages."""


class Printed(NamedTuple):
    """The end of a command."""

    status: int
    out: str
    err: str


def section(page: Path, heading: str) -> str:
    """The text under a heading, with the smaller headings under it."""
    marks, _, _ = heading.partition(" ")
    text = page.read_text()
    begin = f"\n{text}".index(f"\n{heading}\n")
    end = re.search(rf"^#{{1,{len(marks)}}} ", text[begin + len(heading) :], re.MULTILINE)
    return text[begin:] if end is None else text[begin : begin + len(heading) + end.start()]


def commands(text: str) -> list[str]:
    """The lines behind `$ ` of the console blocks, each with the lines that continue it, in their order."""
    lines_of_shell: list[str] = []
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        lines = iter(block.splitlines())
        for line in lines:
            if line.startswith("$ "):
                command = line[2:]
                while command.endswith("\\"):
                    command += "\n" + next(lines)
                lines_of_shell.append(command)
    return lines_of_shell


def yaml_blocks(text: str) -> list[str]:
    """The YAML files of a page."""
    return re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)


class Shell:
    """A bash in a folder, with `headrace` and the variables of a page."""

    def __init__(self, folder: Path, **variables: str) -> None:
        tools = folder / ".bin"
        tools.mkdir()
        headrace = tools / "headrace"
        headrace.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gateway "$@"\n')
        headrace.chmod(0o755)
        for name, package in _TOOLS.items():
            binary(name, package)
        paths = {"PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": str(_ROOT)}
        self.folder = folder
        own = {name: value for name, value in os.environ.items() if name != "COLUMNS"}  # those of pytest-xdist
        self.variables = {**own, **paths, **variables}

    async def run(self, command: str, *, status: int | None = 0) -> Printed:
        """Run a command; `status` is what it must end with, None for any."""
        process = await asyncio.create_subprocess_exec(
            "bash", "-o", "pipefail", "-c", command, cwd=self.folder, env=self.variables,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await asyncio.wait_for(process.communicate(), 300)
        assert process.returncode is not None
        printed = Printed(process.returncode, out.decode(), err.decode())
        assert status in (None, printed.status), (command, printed)
        return printed
