"""A reader of a page, who types its commands in their order and compares what they print."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

PATIENCE = 900.0
"""Seconds for one command: the first `make serve` installs packages."""

_BLOCK = re.compile(
    r"^(?:[^\n]*`(?P<name>[\w-]+\.\w+)`:\n\n)?```(?P<kind>console|sh|python|yaml|text|json)\n(?P<block>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_EXPORT = re.compile(r"export ((?:\w+=\S+ ?)+)(?:#.*)?")
_SERVICE = re.compile(r"^(make serve\b|(\S*/)?headrace serve\b)")
_LOOK = re.compile(r"headrace \w+ (list|show)\b")
"""Commands that change nothing. A gateway that has just started needs a second until they print what the page shows."""
_SETTLED = 60.0
"""Seconds for that, on a busy machine."""
_KEY = re.compile(r"hr-[a-z0-9]+-[\w-]+")
_KEY_OF_A_PAGE = "hr-…"


class Reader:
    """In a folder, with the variables of a shell.

    A YAML block is the file `FILE` of the later commands. A block under a line that ends with its name in backquotes
    and a colon is a file of that name. `hr-…` is the key that was printed last. `…` in an output is any text, and so is
    white space. A gateway runs until the page starts the next one, or until the end.

    `stand_ins`: words of the page, and what is there in their place, such as the address of a server. `within`: a
    command that runs each command of the page, such as one that takes the network away. `serves`: a gateway starts with
    each YAML file. `elsewhere`: beginnings of commands that cannot run here, and words of files with which no gateway
    can start here; these are checked only.
    """

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        stand_ins: Mapping[str, str],
        within: Sequence[str] = (),
        elsewhere: Collection[str] = (),
        serves: bool = False,
    ) -> None:
        self.within = tuple(within)
        self.elsewhere = tuple(elsewhere)
        self.serves = serves
        self.skipped: list[str] = []
        self.folder = folder
        self.environment = dict(environment)
        self.stand_ins = dict(stand_ins)
        self.typed: list[str] = []
        self._key = ""
        self._service: asyncio.subprocess.Process | None = None
        self._files = 0

    async def follow(self, text: str) -> None:
        """Do what each block of the text asks for."""
        for name, kind, block in _BLOCK.findall(text):
            if name:
                (self.folder / name).write_text(self._filled(block))
            elif kind == "yaml":
                self._files += 1
                file = self.folder / f"page-{self._files}.yaml"
                file.write_text(self._filled(block))
                self.stand_ins["FILE"] = file.name
                if self.serves and not any(word in block for word in self.elsewhere):
                    await self._serve("headrace serve --config FILE", "Headrace listens on")
                elif self.serves:
                    self.skipped.append(block)
                    await self._run("headrace check FILE", "")
            elif kind in ("text", "json"):
                continue  # for the eye
            elif kind == "sh":
                await self._run(block, "")
            elif kind == "python":
                await self._program(block)
            else:
                for command, expected in steps(block):
                    await self._type(command, expected)

    async def aclose(self) -> None:
        """Stop the gateway."""
        service, self._service = self._service, None
        if service is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(service.pid, signal.SIGTERM)
            await asyncio.wait_for(service.wait(), PATIENCE)

    async def _program(self, program: str) -> None:
        """A program in Python, with the packages of its `# pip install` comments and the outputs of `# for example`."""
        for packages in re.findall(r"# pip install (.*)$", program, re.MULTILINE):
            await self._run(f"pip install --quiet {packages}", "")
        expected = "".join(re.findall(r"# (?:for example|prints) (.*)$", program, re.MULTILINE))
        (self.folder / "page.py").write_text(self._filled(program))
        await self._run("python page.py", expected or "…")

    async def _type(self, command: str, expected: str) -> None:
        if any(command.startswith(each) for each in self.elsewhere):
            self.skipped.append(command)
        elif (exported := _EXPORT.fullmatch(command)) is not None:
            words = (word.partition("=") for word in self._filled(exported[1]).split())
            self.environment |= {name: value for name, _, value in words}
        elif _SERVICE.match(command):
            await self._serve(command, expected)
        else:
            await self._run(command, expected)

    async def _run(self, command: str, expected: str) -> None:
        text = await self._printed(command)
        until = time.monotonic() + _SETTLED if _LOOK.match(command) else 0.0
        while not is_like(text, self._filled(expected)) and time.monotonic() < until:
            await asyncio.sleep(0.5)
            text = await self._printed(command)
        assert is_like(text, self._filled(expected)), f"{command}\nprinted:\n{text}\ninstead of:\n{expected}"
        self._remember(text)

    async def _printed(self, command: str) -> str:
        async with asyncio.timeout(PATIENCE):
            process = await self._started(command)
            out, notes = await process.communicate()
        text = out.decode(errors="replace")
        failure = f"{command}\nended with {process.returncode}:\n{text}\n{notes.decode(errors='replace')}"
        assert process.returncode == 0, failure
        return text

    async def _serve(self, command: str, expected: str) -> None:
        await self.aclose()
        self._service = service = await self._started(command, subprocess.STDOUT)
        assert service.stdout is not None
        last = "hr-" if "prints a new demo key" in command else "Ready."
        lines = (expected or last).splitlines()
        text, until = "", f"…{'…'.join(lines)}…"  # other lines of the log stand between them
        async with asyncio.timeout(PATIENCE):
            while not is_like(text, until):
                line = await service.stdout.readline()
                assert line, f"{command}\nended without:\n{expected}\nIt printed:\n{text}"
                text += line.decode(errors="replace")
        self._remember(text)
        self._drained = asyncio.create_task(service.stdout.read())

    async def _started(self, command: str, notes: int = subprocess.PIPE) -> asyncio.subprocess.Process:
        line = self._filled(command)
        self.typed.append(line)
        return await asyncio.create_subprocess_exec(
            *self.within, "bash", "-o", "pipefail", "-c", line,
            cwd=self.folder, env=self.environment, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=notes,
        )  # fmt: skip

    def _filled(self, text: str) -> str:
        for word, own in self.stand_ins.items():
            text = re.sub(rf"(?<![\w.]){re.escape(word)}(?!\w)", own.replace("\\", r"\\"), text)
        return text.replace(_KEY_OF_A_PAGE, self._key) if self._key else text

    def _remember(self, text: str) -> None:
        if keys := _KEY.findall(text):
            self._key = keys[-1]


def steps(block: str) -> list[tuple[str, str]]:
    """The commands of a console block, each with the output that the page shows; empty where it shows none."""
    pairs: list[tuple[str, str]] = []
    lines = iter(block.splitlines())
    for line in lines:
        if line.startswith("$ "):
            command = line[2:]
            while command.endswith("\\") or not _is_whole(command):
                command += "\n" + next(lines)
            pairs.append((command, ""))
        else:
            command, expected = pairs[-1]
            pairs[-1] = command, f"{expected}{line}\n"
    return pairs


def is_like(text: str, expected: str) -> bool:
    """Whether a text is the expected one, where `…` stands for any text. An empty one expects nothing."""
    if not expected:
        return True
    parts = ("".join(part.split()) for part in expected.split("…"))
    return re.fullmatch(".*".join(map(re.escape, parts)), "".join(text.split()), re.DOTALL) is not None


def _is_whole(command: str) -> bool:
    return command.count("'") % 2 == 0
