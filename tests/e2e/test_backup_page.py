"""docs/backup.md: its commands, typed beside a running gateway, bring back the state that the page promises."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from gateway.auth.audit import Actor
from gateway.auth.terminal import open_store, settings_of
from tests.support.debian import binary
from tests.support.page_commands import Shell, commands, section
from tests.support.postgres import Postgres
from tests.support.processes import GatewayProcess, gateway, issue, minimal
from tests.support.upstreams import upstream

PAGE = Path("docs/backup.md")
PEPPER = "0123456789abcdef" * 4


@pytest.fixture
async def postgres() -> AsyncIterator[Postgres]:
    server = await asyncio.to_thread(Postgres)
    await asyncio.to_thread(server.start)
    yield server
    await asyncio.to_thread(server.remove)


def first_commands(heading: str) -> list[str]:
    """Those under a heading, before a smaller heading."""
    return commands(section(PAGE, heading).split("\n### ")[0].split("\n## ")[0])


def revoke(g: GatewayProcess, key: str) -> None:
    with closing(open_store(settings_of(g.config))) as store:
        store.revoke(key.split("-")[1], by=Actor("tests"), now=time.time())


async def changed_after_the_backup(g: GatewayProcess, older: str) -> str:
    """Revoke the key of the backup, and issue another one, which is returned."""
    newer = await issue(g)
    await g.until_status(newer, 200)
    await asyncio.to_thread(revoke, g, older)
    await g.until_status(older, 401)
    return newer


async def test_sqlite(tmp_path: Path) -> None:
    async with upstream() as up:
        database = {"state": {"database": f"sqlite:///{tmp_path}/.headrace/state.db"}}
        settings = minimal(up.url, **database)
        shell = Shell(tmp_path)
        async with gateway(tmp_path, settings) as g:
            older = await issue(g)
            await g.until_status(older, 200)
            for line in first_commands("# Back up and restore"):
                await shell.run(line)
            newer = await changed_after_the_backup(g, older)
        outputs = [(await shell.run(line)).out for line in first_commands("## Restore")]
        assert older.split("-")[1] in outputs[3]
        assert newer.split("-")[1] not in outputs[3]
        async with gateway(tmp_path, settings) as g:
            assert (await g.chat(older))[0] == 200  # as the page warns: a revocation since the backup is undone
            assert (await g.chat(newer))[0] == 401


async def test_postgres(tmp_path: Path, postgres: Postgres) -> None:
    programs = Path(binary("postgres", "postgresql", "/usr/lib/postgresql/*/bin")).parent
    url = postgres.database()
    (tmp_path / "pepper").write_text(PEPPER)
    async with upstream() as up:
        settings = minimal(up.url, state={"database": url}, auth={"pepper": "file:pepper"})
        shell = Shell(tmp_path, DATABASE=url)
        shell.variables["PATH"] += f":{programs}"
        async with gateway(tmp_path, settings) as g:
            older = await issue(g)
            await g.until_status(older, 200)
            for line in first_commands("## With Postgres"):
                await shell.run(line)
            newer = await changed_after_the_backup(g, older)
        outputs = [(await shell.run(line)).out for line in commands(section(PAGE, "### Restore Postgres"))]
        assert older.split("-")[1] in outputs[2]
        assert newer.split("-")[1] not in outputs[2]
        async with gateway(tmp_path, settings) as g:
            assert (await g.chat(older))[0] == 200
            assert (await g.chat(newer))[0] == 401


@pytest.mark.plain
def test_every_command_of_the_page_is_typed() -> None:
    parts = ("# Back up and restore", "## With Postgres", "## Restore", "### Restore Postgres")
    assert [line for part in parts for line in first_commands(part)] == commands(PAGE.read_text())
