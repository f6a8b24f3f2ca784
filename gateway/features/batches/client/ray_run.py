"""The same run as a job of Ray Data: actors of a Ray cluster send the lines, and this process writes the results.

Ray may repeat the work of a node that dies. The output file still has one line for each request, because this process
alone writes it, and skips a result that it has written.
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

import aiohttp

from gateway.features.batches.client.progress import RunProgress
from gateway.features.batches.client.results import OutputFile
from gateway.features.batches.client.sending import LineSender
from gateway.features.batches.client.sources import InputError, InputLine

CHUNK = 20_000
"""Lines of one data set: the memory of the cluster and of this process is bounded by it."""
PIECE = 64
"""Lines that an actor receives at once, at least."""


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
        headers = {"authorization": f"Bearer {job.key}"} if job.key else {}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=600.0)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(headers=headers, timeout=timeout, connector=connector) as http:
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
        raise InputError("--ray needs a package: pip install 'headrace[ray]'") from None
    try:
        ray.init(address=address, logging_level="warning", log_to_driver=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise InputError(f"--ray {address}: {str(error).splitlines()[0]}") from None
    ray.data.DataContext.get_current().enable_progress_bars = False
    return ray
