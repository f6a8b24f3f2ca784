"""docs/secrets.md: the pepper is rotated by its commands and its file, while a client goes on."""

import asyncio
from pathlib import Path

import yaml

from tests.support.page_commands import Shell, commands, section, yaml_blocks
from tests.support.processes import gateway, issue, minimal
from tests.support.upstreams import upstream

PAGE = Path("docs/secrets.md")
ROTATION = section(PAGE, "## Rotate the pepper")


async def test_the_pepper_is_rotated_by_the_commands_of_the_page(tmp_path: Path) -> None:
    move, list_keys, remove = commands(ROTATION)
    auth = {"auth": yaml.safe_load(yaml_blocks(ROTATION)[0])["auth"]}
    shell = Shell(tmp_path)
    async with upstream() as up:
        settings = minimal(up.url, state={"database": f"sqlite:///{tmp_path}/.headrace/state.db"})
        async with gateway(tmp_path, settings) as g:
            used, unused = await issue(g), await issue(g)
            await asyncio.gather(g.until_status(used, 200), g.until_status(unused, 200))
        await shell.run(move)
        async with gateway(tmp_path, {**settings, **auth}) as g:
            assert (await g.chat(used))[0] == 200
            async with asyncio.timeout(300):
                while True:
                    lines = (await shell.run(list_keys)).out.splitlines()
                    noted = {line.split()[0]: "old pepper" in line for line in lines[1:]}
                    if not noted[used.split("-")[1]]:
                        break
            assert noted[unused.split("-")[1]]
        await shell.run(remove)
        async with gateway(tmp_path, settings) as g:
            assert (await g.chat(used))[0] == 200
            assert (await g.chat(unused))[0] == 401


async def test_the_key_of_a_provider_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "openai.key").write_text("sk-old")
    shell = Shell(tmp_path, NEW_KEY="sk-new")
    async with upstream() as up:
        settings = minimal(up.url)
        settings["pools"][0]["key"] = "file:openai.key"
        async with gateway(tmp_path, settings) as g:
            key = await g.key()
            assert (await g.chat(key))[0] == 200
            assert up.headers[-1]["authorization"] == "Bearer sk-old"
            for line in commands(section(PAGE, "## Replace the key of a provider")):
                await shell.run(line)
            async with asyncio.timeout(300):
                while up.headers[-1]["authorization"] != "Bearer sk-new":
                    assert (await g.chat(key))[0] == 200
                    await asyncio.sleep(0.05)
