"""The screen of the policy: a draft is checked, replayed, applied and taken back by clicking."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.admin.console.conftest import ConsoleRig, OpenConsole, settings
from tests.support.browsing.axe import check_accessibility
from tests.support.upstreams import upstream

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]
HASH = "0123456789abcdef" * 4
IDLE = "![...document.querySelectorAll('main button:disabled')].some((e) => e.textContent.startsWith('Replay'))"
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"


def configuration(folder: Path, url: str) -> dict[str, Any]:
    (folder / "record.key").write_text("the key of this record")
    return settings(
        url,
        auth={"admin": {"required": True, "edit": True}},
        record={"to": str(folder / "traffic"), "key": "file:record.key", "share": "100%"},
        pools=[{"name": "main", "endpoints": [url]}, {"name": "next", "endpoints": [url]}],
        tenants=[{"name": "acme", "models": ["*"], "keys": [{"id": "a" * 12, "hash": HASH}]}],
    )


async def edit(c: ConsoleRig, old: str, new: str) -> None:
    text = await c.page.evaluate("document.querySelector('#draft').value")
    assert old in text
    await c.page.fill("Draft of", text.replace(old, new))


async def test_an_operator_checks_replays_applies_and_returns(console: OpenConsole, tmp_path: Path) -> None:
    async with upstream() as up, console(configuration(tmp_path, up.url)) as c:
        key = await c.issue(role="operator")
        for _ in range(3):
            assert (await c.chat(key, HOSTILE))[0] == 200
        before = c.g.config.read_text()
        await c.open("/policy")
        await c.sign_in(key)
        await c.page.until("!!document.querySelector('#draft')?.value.includes('redacted-')")
        assert HASH not in await c.page.evaluate(
            "document.documentElement.outerHTML + document.querySelector('#draft').value"
        )
        await check_accessibility(c.page)

        await edit(c, "to: main", f"to: mian # {HOSTILE}")
        await c.page.click("Check")
        await c.page.shows("The draft has problems.")
        await c.page.shows("main")
        await c.page.click("Line ")
        selected = "(e => e.value.slice(e.selectionStart, e.selectionEnd))(document.querySelector('#draft'))"
        assert "mian" in await c.page.evaluate(selected)
        await check_accessibility(c.page)

        await edit(c, f"to: mian # {HOSTILE}", "to: next")
        await c.page.click("Check")
        await c.page.shows("The draft is valid.")
        await c.page.shows("+  - to: next")
        async with asyncio.timeout(300):
            while "3 recorded requests" not in await c.page.text():  # records are written behind the requests
                await c.page.click("Replay the last hour")
                await c.page.until(IDLE)
        await c.page.shows("Another pool")
        await check_accessibility(c.page)
        await c.page.click("Apply")
        await check_accessibility(c.page)
        await c.page.click("Put in force")
        await c.page.until("!document.querySelector('dialog[open]')")
        await c.page.shows("Return to version 1")
        assert c.g.config.read_text() == before.replace("to: main", "to: next")

        await c.page.click("Show version 1")
        await c.page.until("!!document.querySelector('dialog[open] pre')?.textContent.includes('to: main')")
        await c.page.click("Close")
        await c.page.click("Return to version 1")
        await c.page.click("Put in force")
        await c.page.shows("apply")
        await c.page.until("!document.querySelector('dialog[open]')")
        await c.page.until("document.querySelector('#draft')?.value.includes('to: main')")
        assert c.g.config.read_text() == before
        assert await c.page.evaluate("document.querySelectorAll('main img, main script').length") == 0


WAYS = {
    "po": ["pools"],
    "pools:\n- name: x\n  end": ["endpoints"],
    "pools:\n  - name: x\n    end": ["endpoints"],
    "models:\n- name: a\n  routes:\n  - to: x\n    wh": ["when", "when_full"],
    "models:\n- name: a\n  routes:\n  - to: x\n- na": ["name"],
    "models:\n- name: a\n  routes:\n  - rollout:\n      name: x\n      st": ["sticky", "steps"],
    "tenants:\n- {name: a, limits: {re": ["requests"],
    "auth:\n  admin: {required: t": ["true"],
    "auth: {admin: {ed": ["edit"],
    "listen:\n  admin: 1\nmo": ["models"],
    "console: {url: x} # cl": [],
    "models:\n- name: 'po": [],
}
"""The beginning of a file, and what may follow its last word."""


async def test_a_draft_is_completed_and_outlives_the_screen(console: OpenConsole) -> None:
    async with console(settings(auth={"admin": {"edit": True}})) as c:
        await c.open("/policy")
        await c.page.until("!!document.querySelector('#draft')")
        module = "import('./static/screens/policy/completion.js')"
        schema = "fetch('/admin/config/schema').then((response) => response.json())"
        options = "made?.options.map((each) => each.text) ?? []"
        for text, expected in WAYS.items():
            made = f"const made = (await {module}).complete(await {schema}, t, t.length, true)"
            made = f"async (t) => {{ {made}; return {options} }}"
            assert await c.page.evaluate(made, text) == expected, text

        shown = "[...document.querySelectorAll('.proposals li')].map((e) => e.firstChild.textContent)"
        await c.page.evaluate("document.querySelector('#draft').focus()")
        await c.page.until("performance.getEntriesByType('resource').some((e) => e.name.endsWith('/schema'))")
        await c.page.fill("Draft of", "pools:\n- name: x\n  balanc")
        while not await c.page.evaluate(shown):
            await c.page.send(
                "Input.dispatchKeyEvent", type="keyDown", key=" ", code="Space", windowsVirtualKeyCode=32, modifiers=2
            )
        await check_accessibility(c.page)
        await c.page.press("Enter")
        draft, completed = "document.querySelector('#draft').value", "pools:\n- name: x\n  balance: "
        await c.page.until(f"{draft} === {completed!r}")
        await c.page.until("document.querySelector('.editor pre').textContent === '1\\n2\\n3'")
        await c.page.click("Tenants", "nav a")
        await c.page.shows("acme")
        await c.page.click("Policy", "nav a")
        await c.page.shows("This is your draft of")
        await c.page.until(f"{draft} === {completed!r}")
        await check_accessibility(c.page)
        await c.page.click("Discard")
        await c.page.until(f"{draft}.includes('to: main')")
        await c.page.until("sessionStorage.getItem('draft') === null")  # an effect after the next paint


async def test_a_file_that_may_not_be_edited_has_no_way_to_apply(console: OpenConsole) -> None:
    async with console(settings(auth={})) as c:
        await c.open("/policy")
        await c.page.shows("changes over the admin API are not enabled")
        await edit(c, "to: main", "to: other")
        assert await c.page.evaluate(
            "[...document.querySelectorAll('button')].find(b => b.textContent.startsWith('Apply')).disabled"
        )
        await c.page.click("Discard")
        await c.page.until("document.querySelector('#draft').value.includes('to: main')")
