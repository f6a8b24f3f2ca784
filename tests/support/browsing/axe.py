"""axe-core, the accessibility checker, from a package that has its browser build."""

import json
from functools import cache
from typing import Any

from loadtests.venvs import InstallError, add, ensure
from tests.support.absent import absent
from tests.support.browsing.page import Page

PACKAGE = "axe-playwright-python==0.1.8"
"""Has axe-core 4.12; the driver that the package depends on is not installed."""


@cache
def _source() -> str:
    try:
        folder = add(ensure("axe-core", ()), (PACKAGE,))
    except InstallError as error:
        absent(f"axe-core: {error}")
    return next(folder.glob("lib/python*/site-packages/axe_playwright_python/axe.min.js")).read_text()


async def check_accessibility(page: Page) -> None:
    """The page as it is has no violation of WCAG 2.2 AA and of axe's best practices."""
    await page.evaluate(f"(() => {{ {_source()} }})()")
    result: dict[str, Any] = await page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    violations = [
        {"rule": each["id"], "nodes": [(node["html"], node["failureSummary"]) for node in each["nodes"][:3]]}
        for each in result["violations"]
    ]
    assert violations == [], json.dumps(violations, indent=1)
