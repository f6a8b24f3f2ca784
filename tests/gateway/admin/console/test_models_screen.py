"""The models of the file in a real browser: searched, by tenant, and one beside the catalogue."""

import json
from typing import Any

import pytest

from adapters.http1.message import Request, Response
from adapters.http1.server import Server
from tests.gateway.admin.console.conftest import OpenConsole, settings
from tests.gateway.admin.console.hostile import HOSTILE
from tests.support.browsing.axe import check_accessibility

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]
NAMES = "[...document.querySelectorAll('tbody th a')].map((each) => each.innerText).join()"
HOSTED = {"name": "hosted", "endpoints": ["https://api.openai.com"], "probe": None}
MODELS: list[dict[str, Any]] = [
    {"name": "own", "routes": [{"to": "main", "fallback": ["hosted"]}], "price": {"request": "0.01 usd"}},
    {"name": "gpt-4o", "aliases": ["omni"], "routes": [{"to": "hosted", "rewrite": {"caps": {"max_tokens": 99999}}}]},
    {"name": "gpt-4o-mini", "routes": [{"to": "hosted"}], "price": {"prompt": "1 usd/1M", "completion": "2 usd/1M"}},
]
TENANTS = [{"name": "acme", "models": ["*"]}, {"name": "beta", "models": ["own", "gpt-4o"]}]


def configuration() -> dict[str, Any]:
    pools = [{"name": "main", "endpoints": ["http://127.0.0.1:9"]}, HOSTED]
    return settings(pools=pools, models=MODELS, tenants=TENANTS)


async def test_an_operator_sees_every_model_beside_the_catalogue(console: OpenConsole) -> None:
    async with console(configuration()) as c:
        await c.open("/models")
        await c.sign_in(await c.issue(role="operator"))
        await c.page.until(f"{NAMES} === 'gpt-4o,gpt-4o-mini,own'")
        await c.page.shows("128K")
        await c.page.shows("1 / 2 usd")
        await c.page.shows("0.01 usd a request")
        await check_accessibility(c.page)
        await c.page.fill("Model, pool or provider", "OMNI")
        await c.page.until(f"{NAMES} === 'gpt-4o'")
        await c.page.fill("Model, pool or provider", "no such")
        await c.page.shows("No model matches.")
        await check_accessibility(c.page)
        await c.page.fill("Model, pool or provider", "")
        await c.page.choose("Allowed for", "beta")
        await c.page.until(f"{NAMES} === 'gpt-4o,own'")
        await c.page.choose("Show", "with warnings")
        await c.page.until(f"{NAMES} === 'gpt-4o' && location.hash === '#/models?tenant=beta&only=warnings'")
        await c.page.click("gpt-4o", "a")
        await c.page.shows("is above the longest answer of gpt-4o, 16384 tokens")
        await c.page.shows("has no price, so its use costs nothing here")
        await c.page.shows("128,000 tokens")
        await c.page.until("document.querySelectorAll('tbody tr').length >= 2")
        for width in (1440, 360):
            await c.page.resize(width)
            await c.page.until(f"document.documentElement.scrollWidth <= {width}")
            await check_accessibility(c.page)
        await c.page.click("All models", "a")
        await c.page.until(f"{NAMES} === 'gpt-4o'")
        await c.open("/models/nothing")
        await c.page.shows("The file has no such model.")


async def test_a_tenant_admin_sees_the_models_that_its_tenant_may_use(console: OpenConsole) -> None:
    async with console(configuration()) as c:
        await c.open("/models")
        await c.sign_in(await c.issue(tenant="beta", role="tenant-admin"))
        await c.page.until(f"{NAMES} === 'gpt-4o,own'")
        await c.page.fill("Model", "OMNI")
        await c.page.until(f"{NAMES} === 'gpt-4o'")
        assert "hosted" not in (await c.page.text("table"))
        assert "Served by" not in await c.page.text()
        await c.page.click("gpt-4o", "a")
        await c.page.shows("128,000 tokens")
        shown = await c.page.text()
        assert "openai" not in shown
        assert "undefined" not in shown
        assert "Change the file" not in await c.page.text()
        await check_accessibility(c.page)


CARD: dict[str, Any] = {"framework": "onnx", "checksum": f"sha256:{'ab' * 32}", "mlflow.signature": HOSTILE, "owner": 3}


async def metadata(http: Request) -> Response:
    """A server of one model of tensors, whose metadata is not all of the right kind."""
    tensor = {"name": HOSTILE, "datatype": "FP32", "shape": [-1, 4]}
    body = {"name": "m", "versions": ["7"], "inputs": [tensor, None], "outputs": 3, "parameters": CARD}
    return Response(200, [("content-type", "application/json")], json.dumps(body).encode())


async def test_the_metadata_of_the_server_is_the_card_of_the_model(console: OpenConsole) -> None:
    server = Server(metadata)
    host, port = await server.listen_tcp("127.0.0.1", 0)
    pools = [{"name": "main", "protocol": "oip-http", "endpoints": [f"http://{host}:{port}"], "model": "m"}]
    try:
        async with console(settings(auth={}, pools=pools)) as c:
            await c.open("/models/chat")
            await c.page.click("Model card", "button")
            await c.page.shows(CARD["checksum"])
            shown = await c.page.text()
            assert f"{HOSTILE}: FP32 [-1,4]" in shown
            assert "mlflow.signature" in shown
            await check_accessibility(c.page)
    finally:
        await server.aclose()


async def test_a_server_that_is_away_gives_an_error_in_place_of_its_card(console: OpenConsole) -> None:
    pools = [{"name": "main", "protocol": "oip-http", "endpoints": ["http://127.0.0.1:9"], "model": "m"}]
    async with console(settings(auth={}, pools=pools)) as c:
        await c.open("/models/chat")
        await c.page.click("Model card", "button")
        await c.page.until("!!document.querySelector('[role=alert]')")
