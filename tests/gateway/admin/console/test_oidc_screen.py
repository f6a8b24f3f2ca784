"""Sign-in by a real OpenID provider in a real browser."""

from pathlib import Path
from typing import Any

import pytest

from tests.gateway.admin.console.conftest import OpenConsole, settings
from tests.support.browsing.axe import check_accessibility
from tests.support.oidc import oidc_provider
from tests.support.sign_ins import ROLES

PEOPLE: dict[str, dict[str, Any]] = {
    "ana": {"email": "ana@example.org", "groups": ["llm-admins", "others"]},
    "leo": {"email": "leo@example.org", "groups": ["acme-leads"], "team": "acme"},
    "eve": {"email": "eve@example.org", "groups": ["operator"]},
}


pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]


async def test_people_sign_in_with_the_role_of_their_group(console: OpenConsole, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("the secret of the client")
    with oidc_provider(PEOPLE) as issuer:
        oidc = {"issuer": issuer, "client_id": "console", "roles": ROLES, "claims": {"tenant": "team"}}
        oidc["client_secret"] = f"file:{secret}"
        configuration = settings(auth={"admin": {"required": True}}, console={"oidc": oidc})
        async with console(configuration) as c:
            await c.open("/tenants")
            await c.page.shows("Sign in with your organisation")
            await check_accessibility(c.page)
            for person, text in (("ana", "operator: ana@example.org"), ("leo", "acme: leo@example.org")):
                await c.page.click("Sign in with your organisation")
                await authorize(c.page, person)
                await c.page.shows(text)
                assert await c.page.evaluate("location.hash") == "#/tenants"
                await c.sign_out()
            await c.page.click("Sign in with your organisation")
            await authorize(c.page, "eve")
            await c.page.shows("Your account has no role")


async def authorize(page: Any, person: str) -> None:
    """Sign in at the provider's own page."""
    await page.until("location.pathname.includes('authorize')")
    await page.until(
        """(person) => {
          const sub = document.querySelector("input[name=sub]:not([type=hidden])");
          if (!sub) return false;
          sub.value = person;
          sub.form.querySelector("button, input[type=submit]").click();
          return true;
        }""",
        person,
    )
