"""`headrace batch`: run a file of requests against any server, or give it to a gateway."""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Annotated, Any

import aiohttp
import typer
from rich.console import Console
from rich.live import Live

from gateway.auth.terminal import plain_errors, print_status, settings_of, stop
from gateway.features.batches.client.run import (
    LineSender,
    OutputExists,
    OutputFile,
    RayJob,
    RunProgress,
    run_on_ray,
    session_of,
)
from gateway.features.batches.client.sources import CHAT, InputError, RowMapping, lines_of
from policies.limits.price import Price

PIECE = 256 * 1024
_PATIENCE = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=120.0)
app = typer.Typer(name="batch", help="Run many requests from a file.", no_args_is_help=True)
KEY = "HEADRACE_API_KEY"
URL = "http://127.0.0.1:8080"
Against = Annotated[
    str, typer.Option("--against", metavar="URL", help="The server. The variable HEADRACE_API_KEY has the key.")
]
BatchId = Annotated[str, typer.Argument(metavar="BATCH")]


class RemoteError(Exception):
    """The gateway cannot be reached, or refuses. The message is for the user."""


class RemoteBatches:
    """The batches of one key at one gateway. Methods raise `RemoteError`."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = url.removesuffix("/").removesuffix("/v1")

    async def submit(self, path: Path, endpoint: str, window: str) -> dict[str, Any]:
        """Upload a file and create its batch."""
        with path.open("rb") as file:
            form = aiohttp.FormData({"purpose": "batch"})
            form.add_field("file", file, filename=path.name)
            uploaded = await self._call("POST", "/v1/files", data=form)
        body = {"input_file_id": uploaded["id"], "endpoint": endpoint, "completion_window": window}
        return await self._call("POST", "/v1/batches", json=body)

    async def status(self, id_: str) -> dict[str, Any]:
        """A batch."""
        return await self._call("GET", f"/v1/batches/{id_}")

    async def listed(self) -> list[dict[str, Any]]:
        """The newest batches."""
        return list((await self._call("GET", "/v1/batches?limit=100"))["data"])

    async def cancel(self, id_: str) -> dict[str, Any]:
        """Cancel a batch."""
        return await self._call("POST", f"/v1/batches/{id_}/cancel")

    async def fetch(self, file_id: str, to: Path) -> int:
        """Write a file's content. Returns its size."""
        size, new = 0, to.with_name(f"{to.name}.new")
        async with self._answer("GET", f"/v1/files/{file_id}/content") as response:
            with new.open("wb") as file:
                async for piece in response.content.iter_chunked(PIECE):
                    size += file.write(piece)
        new.replace(to)
        return size

    async def _call(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        async with self._answer(method, path, **arguments) as response:
            return dict(await response.json())

    @asynccontextmanager
    async def _answer(self, method: str, path: str, **arguments: Any) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            async with self._http.request(method, f"{self._url}{path}", timeout=_PATIENCE, **arguments) as response:
                if response.status >= 400:
                    raise RemoteError(f"{self._url}: {response.status}: {await _message(response)}")
                yield response
        except (aiohttp.ClientError, TimeoutError, ValueError, TypeError, RecursionError) as error:
            raise RemoteError(f"{self._url}: {error or type(error).__name__}") from None


async def _message(response: aiohttp.ClientResponse) -> str:
    try:
        return str((await response.json(content_type=None))["error"]["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return response.reason or ""


@app.command()
def run(
    source: Annotated[Path, typer.Option("--input", "-i", metavar="FILE", help="JSONL, or .csv or .parquet.")],
    target: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="JSONL with one line a request.")],
    resume: Annotated[bool, typer.Option("--resume", help="Continue a stopped run; failed lines run again.")] = False,
    model: Annotated[str | None, typer.Option("--model", help="The model of every line.")] = None,
    against: Against = URL,
    concurrency: Annotated[int, typer.Option(min=1, max=4096, help="Requests at the same time.")] = 32,
    ray: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Send from a Ray cluster: auto, local, or its address.")
    ] = None,
    ray_workers: Annotated[int, typer.Option(min=1, max=1024, help="With --ray: actors that send.")] = 2,
    prompt: Annotated[str | None, typer.Option(help="For rows: the prompt, with columns as {COLUMN}.")] = None,
    system: Annotated[str | None, typer.Option(help="For rows: the system message, with columns as {COLUMN}.")] = None,
    id_column: Annotated[str | None, typer.Option("--id", help="For rows: the column of the ids.")] = None,
    mapped: Annotated[
        list[str] | None, typer.Option("--map", metavar="FIELD=COLUMN", help="For rows: a field of the body.")
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="YAML file whose prices give the cost.")] = None,
) -> None:
    """Send every request of a file, and write one line for each. Exits with 1 if a line failed."""
    rows = None if prompt is None else RowMapping(prompt, id_column, _fields(mapped or []), system)
    prices: Mapping[str, Price] = {}
    if config is not None:
        with plain_errors():
            models = settings_of(config).models
        prices = {each.name: Price(each.price).of_batch for each in models if each.price is not None}
    try:
        total = sum(1 for _ in lines_of(source, model, rows))
        with OutputFile(target, resume=resume) as output:
            progress = RunProgress(total, len(output.answered), prices, time.monotonic())
            if ray is None:
                asyncio.run(_run(output, progress, lambda: lines_of(source, model, rows), against, concurrency))
            else:
                job = RayJob(ray, ray_workers, against, os.environ.get(KEY, ""), concurrency)
                with _shown(progress) as show:
                    run_on_ray(job, lines_of(source, model, rows), output, progress, show)
    except KeyboardInterrupt:
        stop("stopped: continue with --resume", status=130)
    except (InputError, OutputExists) as error:
        stop(str(error))
    except OSError as error:
        stop(f"{error.filename or target}: {error.strerror or error}")
    print_status(progress.text(time.monotonic()))
    if progress.failed:
        raise typer.Exit(1)


async def _run(
    output: OutputFile, progress: RunProgress, lines: Callable[[], Any], against: str, concurrency: int
) -> None:
    async with session_of(os.environ.get(KEY, "")) as http:
        sender = LineSender(http, against, output, progress)
        with _shown(progress) as show:
            await sender.send(lines(), concurrency, show)


@contextmanager
def _shown(progress: RunProgress) -> Iterator[Callable[[], None]]:
    """A function that shows the progress, if there is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda: None
        return
    with Live(console=console, refresh_per_second=4) as live:
        yield lambda: live.update(progress.text(time.monotonic()))


@app.command()
def submit(
    source: Annotated[Path, typer.Option("--input", "-i", metavar="FILE", help="JSONL in OpenAI's form.")],
    endpoint: Annotated[str, typer.Option(help="The `url` of the lines.")] = CHAT,
    window: Annotated[str, typer.Option(help="24h, or a shorter time such as 30m.")] = "24h",
    against: Against = URL,
) -> None:
    """Give a file to a gateway, which runs it. Prints the batch."""
    _print(_remote(against, lambda remote: remote.submit(source, endpoint, window)))


@app.command()
def status(batch: Annotated[str | None, typer.Argument(metavar="[BATCH]")] = None, against: Against = URL) -> None:
    """Show a batch, or the newest batches."""
    if batch is not None:
        _print(_remote(against, lambda remote: remote.status(batch)))
        return
    for each in _remote(against, lambda remote: remote.listed()):
        counts = each["request_counts"]
        ended = counts["completed"] + counts["failed"]
        typer.echo(f"{each['id']}  {each['status']:11}  {ended}/{counts['total']}  {counts['failed']} failed")


@app.command()
def cancel(batch: BatchId, against: Against = URL) -> None:
    """Cancel a batch. Its results so far stay."""
    _print(_remote(against, lambda remote: remote.cancel(batch)))


@app.command()
def fetch(
    batch: BatchId,
    target: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The answers.")],
    errors: Annotated[Path | None, typer.Option("--errors", metavar="FILE", help="The lines that failed.")] = None,
    against: Against = URL,
) -> None:
    """Write the results of a batch that has ended. Exits with 1 if lines failed."""

    async def fetched(remote: RemoteBatches) -> dict[str, Any]:
        made = await remote.status(batch)
        if made["status"] not in ("completed", "expired", "cancelled", "failed"):
            raise RemoteError(f"{batch} is {made['status']}: try again when it has ended")
        beside = errors or target.with_name(f"{target.name}.errors")
        for file_id, path in ((made["output_file_id"], target), (made["error_file_id"], beside)):
            if file_id is not None:
                print_status(f"{path}: {await remote.fetch(file_id, path)} bytes")
        return made

    made = _remote(against, fetched)
    if made["error_file_id"] is not None or made["status"] == "failed":
        raise typer.Exit(1)


def _remote(url: str, use: Callable[[RemoteBatches], Awaitable[Any]]) -> Any:
    async def used() -> Any:
        async with session_of(os.environ.get(KEY, "")) as http:
            return await use(RemoteBatches(http, url))

    try:
        return asyncio.run(used())
    except RemoteError as error:
        stop(str(error), status=1)
    except OSError as error:
        stop(f"{error.filename}: {error.strerror or error}")


def _fields(mapped: list[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in mapped]
    if wrong := next((text for text, (field, sign, column) in zip(mapped, pairs, strict=True)
                      if not (field and sign and column)), None):  # fmt: skip
        stop(f"--map: expected FIELD=COLUMN, got {wrong!r}")
    return {field: column for field, _, column in pairs}


def _print(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2))
