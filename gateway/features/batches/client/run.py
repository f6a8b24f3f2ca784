"""A run: sends lines to a server, here or from a Ray cluster, and writes each answer once.

The output file has one line for each request. A stopped run continues with the requests that have no answer. Ray may
repeat the work of a node that dies: this process alone writes the file, and skips a result that it has written.
"""

import asyncio
import json
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

import aiohttp

from adapters.wire.decoding import whole_number
from config.installing import installing
from config.schema.money import Money, format_amount
from gateway.features.batches.client.sources import InputError, InputLine
from gateway.traffic.queue import PRIORITY_HEADER
from policies.limits.price import Price

ATTEMPTS = 8
LONGEST_PAUSE = 30.0
_AGAIN = frozenset({408, 409, 429, 500, 502, 503, 504, 529})
CHUNK = 20_000
"""Lines of one data set: the memory of the cluster and of this process is bounded by it."""
PIECE = 64
"""Lines that an actor receives at once, at least."""


class OutputExists(Exception):
    """The output file has results already, and the run does not continue them."""


class OutputFile:
    """Appends results, each as one line. `answered` are the ids that have an answer already."""

    def __init__(self, path: Path, *, resume: bool) -> None:
        """Raises `OutputExists`. Continuing removes failed and torn lines: their requests run again."""
        self.answered = set[str]()
        if path.exists() and path.stat().st_size:
            if not resume:
                raise OutputExists(f"{path} has results: continue them with --resume, or choose another file")
            self._retain_answers(path)
        self._file = path.open("ab")

    def write(self, result: dict[str, Any]) -> None:
        """Append a result. The line is whole in the file, or absent after a crash."""
        self._file.write(json.dumps(result, ensure_ascii=False).encode(errors="backslashreplace") + b"\n")
        self._file.flush()

    def _retain_answers(self, path: Path) -> None:
        new = path.with_name(f"{path.name}.new")
        with path.open("rb") as old, new.open("wb") as rest:
            for raw in old:
                custom_id = _answered_id(raw)
                if custom_id is not None and custom_id not in self.answered:
                    self.answered.add(custom_id)
                    rest.write(raw)
            rest.flush()
            os.fsync(rest.fileno())
        new.replace(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def _answered_id(raw: bytes) -> str | None:
    """The id of a whole line with an answer."""
    if not raw.endswith(b"\n"):
        return None
    try:
        line = json.loads(raw)
        is_answer = line["error"] is None and line["response"]["status_code"] < 400
        return str(line["custom_id"]) if is_answer else None
    except (ValueError, KeyError, TypeError):
        return None


class RunProgress:
    """Counts of a run that began at `started` (monotonic seconds)."""

    def __init__(self, total: int, answered: int, prices: Mapping[str, Price], started: float) -> None:
        self.total = total
        self.earlier = answered
        self.succeeded = 0
        self.failed = 0
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.cost: Money | None = None
        self._prices = prices
        self._started = started

    @property
    def ended(self) -> int:
        """Lines with a result, those of earlier runs included."""
        return self.earlier + self.succeeded + self.failed

    def add(self, model: Any, status: int, body: Any) -> None:
        """Count a result."""
        if status >= 400:
            self.failed += 1
            return
        self.succeeded += 1
        usage = body.get("usage") if isinstance(body, dict) else None
        usage = usage if isinstance(usage, dict) else {}
        prompt = _count(usage, "prompt_tokens", "input_tokens")
        completion = _count(usage, "completion_tokens", "output_tokens")
        self.prompt_tokens += prompt
        self.completion_tokens += completion
        if (price := self._prices.get(model)) is not None:
            cost = price.cost(prompt, completion)
            self.cost = cost if self.cost is None else Money(self.cost.picos + cost.picos, cost.currency)

    def rate(self, now: float) -> float:
        """Results each second."""
        return (self.succeeded + self.failed) / max(now - self._started, 1e-9)

    def remaining(self, now: float) -> float | None:
        """Seconds until the end at this rate; None before the first result."""
        rate = self.rate(now)
        return (self.total - self.ended) / rate if rate > 0 else None

    def text(self, now: float) -> str:
        """One line for a terminal."""
        parts = [f"{self.ended}/{self.total} lines", f"{self.failed} failed", f"{self.rate(now):.1f}/s"]
        if (left := self.remaining(now)) is not None and self.ended < self.total:
            minutes, seconds = divmod(int(left), 60)
            parts.append(f"{minutes // 60}:{minutes % 60:02}:{seconds:02} left")
        parts.append(f"{self.prompt_tokens}+{self.completion_tokens} tokens")
        if self.cost is not None:
            parts.append(f"{format_amount(self.cost.picos)} {self.cost.currency}")
        return ", ".join(parts)


def _count(usage: Mapping[str, Any], *names: str) -> int:
    return next((usage[name] for name in names if isinstance(usage.get(name), int)), 0)


class ResultWriter(Protocol):
    """Receives results. `answered` are the ids that have an answer already."""

    answered: set[str]

    def write(self, result: dict[str, Any]) -> None:
        """Write a result."""


def session_of(key: str) -> aiohttp.ClientSession:
    """A client's session with a key; without one if it is empty. It bounds the silence of a server, not an answer."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=600.0)
    return aiohttp.ClientSession(headers=headers, timeout=timeout, connector=aiohttp.TCPConnector(limit=0))


class LineSender:
    """`send` every line of a run."""

    def __init__(self, http: aiohttp.ClientSession, url: str, output: ResultWriter, progress: RunProgress) -> None:
        self._http = http
        self._url = url.removesuffix("/").removesuffix("/v1")
        self._output = output
        self._progress = progress

    async def send(self, lines: Iterator[InputLine], concurrency: int, ended: Callable[[], None]) -> None:
        """Send the lines that have no answer yet. `ended` is called after each result."""
        slots = asyncio.Semaphore(concurrency)

        async def one(line: InputLine) -> None:
            try:
                status, request_id, body = await self._answer(line)
                self._write(line, status, request_id, body)
                ended()
            finally:
                slots.release()

        async with asyncio.TaskGroup() as group:
            for line in lines:
                if line.custom_id not in self._output.answered:
                    await slots.acquire()
                    group.create_task(one(line))

    async def _answer(self, line: InputLine) -> tuple[int, str, Any]:
        """The last answer to a line; a failure that may pass is repeated."""
        pause = 0.5
        for attempt in range(ATTEMPTS):
            try:
                async with self._http.post(
                    f"{self._url}{line.url}", json=line.body, headers={PRIORITY_HEADER: "batch"}
                ) as response:
                    body = await response.json(content_type=None)
                    status, wait = response.status, _seconds(response.headers.get("retry-after"))
                    request_id = response.headers.get("x-request-id", "")
            except (aiohttp.ClientError, TimeoutError, ValueError, RecursionError) as error:
                status, wait, request_id = 502, None, ""
                body = {"error": {"message": f"{type(error).__name__}: {error}", "code": "connection_failed"}}
            if status not in _AGAIN or attempt + 1 == ATTEMPTS:
                break
            await asyncio.sleep(min(LONGEST_PAUSE, pause if wait is None else max(pause, wait)))
            pause *= 2
        return status, request_id, body

    def _write(self, line: InputLine, status: int, request_id: str, body: Any) -> None:
        response = {"status_code": status, "request_id": request_id, "body": body}
        id_ = f"batch_req_{uuid.uuid4().hex}"
        self._output.write({"id": id_, "custom_id": line.custom_id, "response": response, "error": None})
        self._progress.add(line.body.get("model"), status, body)


def _seconds(text: str | None) -> float | None:
    seconds = whole_number(text or "")
    return None if seconds is None else float(seconds)


class RayJob(NamedTuple):
    """The cluster (`auto`, `local`, or an address such as `ray://HOST:10001`), and the senders in it."""

    address: str
    workers: int
    against: str
    key: str
    concurrency: int
    """Requests at the same time, over all workers."""


class LineWorker:
    """An actor that sends lines. Its node needs this package."""

    def __init__(self, job: RayJob) -> None:
        self._job = job

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[str]]:
        lines = [InputLine(*json.loads(text)) for text in batch["line"]]
        return {"result": asyncio.run(self._send(lines))}

    async def _send(self, lines: list[InputLine]) -> list[str]:
        job, collected = self._job, CollectedResults()
        async with session_of(job.key) as http:
            sender = LineSender(http, job.against, collected, RunProgress(len(lines), 0, {}, 0.0))
            await sender.send(iter(lines), max(1, job.concurrency // job.workers), lambda: None)
        return collected.results


class CollectedResults:
    """Results in memory, until they are returned to the process that writes them."""

    def __init__(self) -> None:
        self.answered = set[str]()
        self.results = list[str]()

    def write(self, result: dict[str, Any]) -> None:
        """Add a result."""
        self.results.append(json.dumps(result, ensure_ascii=False))


def run_on_ray(
    job: RayJob, lines: Iterator[InputLine], output: OutputFile, progress: RunProgress, ended: Callable[[], None]
) -> None:
    """Run the lines that have no answer yet. Raises `InputError` without Ray, or without a cluster."""
    ray = _connected(job.address)
    open_lines = (line for line in lines if line.custom_id not in output.answered)
    try:
        while chunk := list(islice(open_lines, CHUNK)):
            models = {line.custom_id: line.body.get("model") for line in chunk}
            for text in _results(ray, job, chunk):
                result = json.loads(text)
                if (custom_id := result["custom_id"]) not in models:
                    continue  # Ray has repeated a piece
                output.write(result)
                response = result["response"]
                progress.add(models.pop(custom_id), response["status_code"], response["body"])
                ended()
    finally:
        ray.shutdown()


def _results(ray: Any, job: RayJob, chunk: list[InputLine]) -> Iterator[str]:
    piece = max(PIECE, job.concurrency // job.workers)
    items = [{"line": json.dumps(line)} for line in chunk]
    data = ray.data.from_items(items, override_num_blocks=max(1, min(len(items), 4 * job.workers)))
    sent = data.map_batches(
        LineWorker, fn_constructor_args=(job,), batch_size=piece, concurrency=job.workers, num_cpus=0.1
    )
    for row in sent.iter_rows():
        yield row["result"]


def _connected(address: str) -> Any:
    try:
        import ray
        import ray.data
    except ModuleNotFoundError:
        raise InputError(f"--ray needs an extra: {installing('ray')}") from None
    try:
        ray.init(address=address, logging_level="warning", log_to_driver=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise InputError(f"--ray {address}: {str(error).splitlines()[0]}") from None
    ray.data.DataContext.get_current().enable_progress_bars = False
    return ray
