"""`headrace requests`: a search of stored requests, and the timeline of one, over the admin API."""

import asyncio
import json
import os
from typing import Annotated, Any
from urllib.parse import quote

import aiohttp
import typer

from gateway.auth.terminal import ADMIN_KEY, ConfigFile, admin_url, plain_errors, settings_of, stop

app = typer.Typer(name="requests", help="Search stored requests of a running gateway.", no_args_is_help=True)

Text = str | None
Url = Annotated[Text, typer.Option("--url", help="The admin listener. By default that of the configuration.")]
_SECONDS = 60.0
_PAGE = 1000
_COLUMNS = (
    "time", "id", "tenant", "team", "user", "model", "status", "code", "cause", "duration_ms", "cost", "currency",
    "endpoint",
)  # fmt: skip


@app.command("list")
def list_requests(
    tenant: Annotated[Text, typer.Option(help="Equal text.")] = None,
    team: Annotated[Text, typer.Option(help="Equal text.")] = None,
    key: Annotated[Text, typer.Option(help="Equal text.")] = None,
    user: Annotated[Text, typer.Option(help="The end user, if `usage.users` counts them.")] = None,
    model: Annotated[Text, typer.Option(help="Equal text.")] = None,
    pool: Annotated[Text, typer.Option(help="Equal text.")] = None,
    status: Annotated[Text, typer.Option(help="429, or a class such as 5xx.")] = None,
    error: Annotated[Text, typer.Option(help="Kind of the error; * is any.")] = None,
    code: Annotated[Text, typer.Option(help="Code of the error; * is any.")] = None,
    trace: Annotated[Text, typer.Option(help="The trace id.")] = None,
    begin: Annotated[Text, typer.Option("--from", metavar="TIME", help="A time in UTC.")] = None,
    end: Annotated[Text, typer.Option("--to", metavar="TIME", help="The end, which is not included.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, help="Most requests.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on each line.")] = False,
    url: Url = None,
    config: ConfigFile = None,
) -> None:
    """List stored requests, the newest first."""
    query = {"tenant": tenant, "team": team, "key": key, "model": model, "pool": pool, "status": status}
    query |= {"error": error, "code": code, "trace": trace, "user": user, "from": begin, "to": end}
    rows = asyncio.run(_pages(_address(url, config), {n: v for n, v in query.items() if v is not None}, limit))
    if as_json:
        for row in rows:
            typer.echo(json.dumps(row))
    else:
        _print_table(rows)


@app.command()
def show(
    id: Annotated[str, typer.Argument(metavar="ID", help="The `x-request-id`.")],
    at: Annotated[Text, typer.Option(help="The `time` of one of several requests with this id.")] = None,
    url: Url = None,
    config: ConfigFile = None,
) -> None:
    """Print the timeline of a request as JSON."""
    query = {} if at is None else {"at": at}
    made = asyncio.run(read_admin(_address(url, config), f"/{quote(id, safe='')}", query))
    typer.echo(json.dumps(made, indent=2))


def _address(url: str | None, config: ConfigFile) -> str:
    with plain_errors():
        return f"{(url or admin_url(settings_of(config))).rstrip('/')}/admin/requests"


async def _pages(url: str, query: dict[str, str], limit: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    after: dict[str, str] = {}
    while len(rows) < limit:
        page = await read_admin(url, "", {**query, **after, "limit": str(min(_PAGE, limit - len(rows)))})
        rows += page["requests"]
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    return rows


async def read_admin(url: str, path: str, query: dict[str, str], *, next_step: str = "") -> dict[str, Any]:
    """A JSON object of the admin API. Ends the command with the message of an error.

    `next_step` is what to do if no gateway answers.
    """
    key = os.environ.get(ADMIN_KEY, "")
    headers = {"authorization": f"Bearer {key}"} if key else {}
    timeout = aiohttp.ClientTimeout(_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(headers=headers, timeout=timeout) as http,
            http.get(url + path, params=query, allow_redirects=False) as response,
        ):
            body = await response.json()
            status = response.status
    except (aiohttp.ClientConnectionError, TimeoutError) as error:
        stop(f"no gateway answers at {url}: {error or 'no response in time'}{next_step}", status=1)
    except (aiohttp.ClientError, ValueError, RecursionError) as error:
        stop(f"{url}: {error}", status=1)
    if not isinstance(body, dict):
        stop(f"{url} is not the admin listener of a gateway", status=1)
    if status != 200:
        reason = body.get("error", {})
        hint = f"; set {ADMIN_KEY} to the key of an operator" if status in (401, 403) else ""
        stop(f"{reason.get('param') or url}: {reason.get('message', f'status {status}')}{hint}", status=1)
    return body


def _print_table(rows: list[dict[str, Any]]) -> None:
    names = [name for name in _COLUMNS if any(name in row for row in rows)]
    table = [names, *[[_plain(row.get(name, "")) for name in names] for row in rows]]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table if rows else ():
        typer.echo("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def _plain(value: object) -> str:
    """A value without the control characters of a hostile client."""
    return "".join(char if char.isprintable() else "?" for char in str(value))
