"""The command `headrace top`."""

import asyncio
import os
from contextlib import suppress
from typing import Annotated

import aiohttp
import typer
from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from gateway.admin.top.rates import Rates
from gateway.admin.top.screen import frame
from gateway.admin.top.source import GatewaySample, Refused, SampleUnavailable, sample
from gateway.auth.terminal import ADMIN_KEY, ConfigFile, admin_url, plain_errors, settings_of, stop
from gateway.terminal import plain


def top(
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="The admin listener. By default that of the configuration.")
    ] = None,
    every: Annotated[float, typer.Option(min=0.2, max=60.0, help="Seconds between two samples.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one frame and exit.")] = False,
    config: ConfigFile = None,
) -> None:
    """Show a running gateway: pools, queues, models and tenants. Ctrl-C ends it.

    The environment variable HEADRACE_ADMIN_KEY has the key of an operator, if the admin listener requires one.
    """
    with plain_errors():
        address = (url or admin_url(settings_of(config))).rstrip("/")
    try:
        with suppress(KeyboardInterrupt):
            asyncio.run(_run(address, every, once=once))
    except SampleUnavailable as error:
        stop(str(error), status=1)


async def _run(url: str, every: float, *, once: bool) -> None:
    key = os.environ.get(ADMIN_KEY, "")
    headers = {"authorization": f"Bearer {key}"} if key else {}
    async with aiohttp.ClientSession(headers=headers) as http:
        before = await sample(http, url)
        await asyncio.sleep(every)
        if once:
            Console().print(_view(before, await sample(http, url)))
            return
        with Live(Text(f"{url} …"), screen=True, auto_refresh=False, vertical_overflow="ellipsis") as live:
            while True:
                try:
                    after = await sample(http, url)
                    live.update(_view(before, after), refresh=True)
                    before = after
                except Refused:
                    raise
                except SampleUnavailable as error:
                    live.update(plain(error), refresh=True)
                await asyncio.sleep(every)


def _view(before: GatewaySample, after: GatewaySample) -> RenderableType:
    return frame(after, Rates(before, after))
