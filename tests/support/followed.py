"""Follows a page in a network of its own: `python -m tests.support.followed PAGE FOLDER`.

The addresses of the pages' servers are in that network, with a server of chats behind each. So ports and addresses are
those that the page prints, and pages do not disturb each other.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

from adapters.http1.message import Request, Response
from adapters.http1.server import Server
from tests.support.page_reader import Reader
from tests.support.upstreams import Upstream

ADDRESSES = ("10.0.0.5:8000", "10.0.0.6:8000", "10.0.0.7:8000", "10.0.0.8:8000")


class Page(NamedTuple):
    """What a reader of a page has, and what cannot be typed here."""

    elsewhere: Mapping[str, str] = {}
    """Beginnings of commands that do not run here, and words of files that are checked only, each with the reason."""
    files: Mapping[str, str] = {}
    """Files of the reader, by name."""
    begins: tuple[str, ...] = ()
    """Commands before the page."""
    variables: Mapping[str, str] = {}
    """Of the shell: secrets that the page's files name."""
    serves: bool = True
    """Whether a gateway starts with each YAML file."""


KEY = "0123456789abcdef" * 4
SMALL = """\
version: 1
workers: 2
pools: [{name: vllm, endpoints: [http://10.0.0.5:8000]}]
models: [{name: chat, routes: [{to: vllm}]}]
tenants: [{name: acme, models: [chat]}]
"""
PAGES: Mapping[str, Page] = {
    "docs/credentials.md": Page(variables=dict.fromkeys(("KEY_ID", "SECRET_KEY", "CLIENT_SECRET"), KEY)),
    "docs/policies.md": Page(
        elsewhere={"db.internal": "a gateway with this file needs a Postgres of that name"},
        files={"openai.key": "sk-of-a-reader", "anthropic.key": "sk-of-a-reader"},
        variables={"PEPPER": KEY},
    ),
    "docs/rollouts.md": Page(),
    "docs/switching.md": Page(serves=False),
    "docs/upgrade.md": Page(
        elsewhere={
            "pip install": "replaces the installation that all pages share; the page without internet installs a wheel"
        },
        files={"headrace.yaml": SMALL},
        begins=("headrace serve --config headrace.yaml",),
    ),
}
"""Pages that are followed word for word."""


class Models(Upstream):
    """A server of chats that lists a model, so that it can be identified."""

    async def __call__(self, http: Request) -> Response:
        if http.path == "/v1/models":
            models = {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "tests"}]}
            return Response(200, [("content-type", "application/json")], json.dumps(models).encode())
        return await super().__call__(http)


async def follow(name: str, folder: Path) -> None:
    """Follow a page in a clone. Raises `AssertionError` with the first command that does not do what the page shows."""
    page = PAGES[name]
    async with AsyncExitStack() as stack:
        for address in ADDRESSES:
            host, _, port = address.partition(":")
            subprocess.run(["ip", "address", "add", f"{host}/32", "dev", "lo"], check=True)  # noqa: ASYNC221
            server = Server(Models("hello"))
            await server.listen_tcp(host, int(port))
            stack.push_async_callback(server.aclose)
        for file, text in page.files.items():
            (folder / file).write_text(text)
        programs = folder / ".bin"
        programs.mkdir()
        headrace = programs / "headrace"
        headrace.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gateway "$@"\n')
        headrace.chmod(0o755)
        environment = {
            **{each: value for each, value in os.environ.items() if each not in ("COLUMNS", "CI")},
            **page.variables,
            "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(folder),
        }
        reader = Reader(folder, environment, {}, elsewhere=page.elsewhere, serves=page.serves)
        stack.push_async_callback(reader.aclose)
        for command in page.begins:
            await reader.follow(f"```console\n$ {command}\n```\n")
        await reader.follow((folder / name).read_text())
    unused = [each for each in page.elsewhere if not any(each in text for text in reader.skipped)]
    assert not unused, f"{name} has these no more: {unused}"
    print(json.dumps({"typed": reader.typed, "skipped": reader.skipped}))


if __name__ == "__main__":
    asyncio.run(follow(sys.argv[1], Path(sys.argv[2])))
