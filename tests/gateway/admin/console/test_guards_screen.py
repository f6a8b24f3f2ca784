"""The screen of guards, and the verdicts of one request in its view."""

import json

import pytest

from tests.gateway.admin.console.conftest import OpenConsole, settings
from tests.support.browsing.axe import check_accessibility
from tests.support.upstreams import upstream

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]
ROW = "(name) => [...document.querySelectorAll('tbody tr')].find((row) => row.cells[0].textContent === name)"
CELLS = f"(name, texts) => JSON.stringify([...(({ROW})(name)?.cells ?? [])].map((c) => c.textContent)) === texts"
GUARDS = [
    {"name": "projects", "kind": "words", "words": ["atlas"], "action": "block", "on": ["prompt"]},
    {
        "name": "weak", "kind": "words", "words": ["far"], "action": "warn", "mode": "monitor",
        "exempt": {"roles": ["operator"]},
    },
    {"name": "judged", "kind": "model", "model": "chat", "prompt": "Is it?", "on": ["prompt"], "mode": "monitor"},
]  # fmt: skip


async def test_an_operator_reads_the_verdicts_of_guards(console: OpenConsole) -> None:
    made = settings(
        requests={"flush": "100ms"},
        guards=GUARDS,
        models=[
            {"name": "chat", "guards": ["projects"], "routes": [{"to": "main", "guards": ["weak"]}]},
            {"name": "other", "guards": ["judged"], "routes": [{"to": "main"}]},
        ],
        tenants=[{"name": "acme", "models": ["*"], "guards": ["weak"]}],
    )
    async with (
        upstream("hello from far away") as up,
        console({**made, "pools": [{"name": "main", "endpoints": [up.url]}]}) as c,
    ):
        operator, user = await c.issue(role="operator"), await c.issue()
        await c.open("/guards")
        await c.sign_in(operator)
        await c.page.shows("Texts that each guard has found")
        assert (await c.chat(user, "about atlas"))[0] == 400
        assert (await c.chat(user, "hi"))[0] == 200
        assert (await c.chat(user, "hi", model="other"))[0] == 200  # the model writes neither yes nor no
        places = "tenant acme, route 1 of chat"
        rows = {
            "projects": ["projects", "words", "block", "prompt", "model chat", "", "1", "0", "0", "", "–"],
            "weak": [
                "weak",
                "words",
                "warn monitor",
                "prompt, answer",
                places,
                "role operator",
                "0",
                "2",
                "0",
                "",
                "–",
            ],
        }
        for name, cells in rows.items():
            await c.page.until(CELLS, name, json.dumps(cells, ensure_ascii=False, separators=(",", ":")))
        await c.page.until(f"((name) => ({ROW})(name)?.cells[8].textContent === '1')", "judged")
        await check_accessibility(c.page)
        await c.until_stored(3, operator)
        await c.open("/requests")
        await c.page.until("document.querySelectorAll('tbody a').length === 3")
        await c.page.evaluate("document.querySelectorAll('tbody a')[2].click()")
        await c.page.shows("projects: block in the prompt")
        await check_accessibility(c.page)


async def test_a_file_without_guards_has_none_to_show(console: OpenConsole) -> None:
    async with console(settings(auth={})) as c:
        await c.open("/guards")
        await c.page.shows("The file has no guard.")
