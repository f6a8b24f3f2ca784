"""The paths of the server, and the life of its process."""

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import msgspec

from adapters.http1.message import Request, Response
from adapters.http1.server import Limits, Server
from runtimes.access import keyed
from runtimes.process import CannotStart, listen, stop_signal
from runtimes.recogniser.analyzers import Analyzer

log = logging.getLogger(__name__)
DRAIN = 30.0
"""Seconds for requests in flight when the process ends."""
MOST_TEXT = 1_000_000
"""Characters that spaCy takes."""
_JSON = [("content-type", "application/json")]
_encode = msgspec.json.Encoder().encode


class _Analysis(msgspec.Struct):
    """A request. Other fields of Presidio's have no effect."""

    text: str
    language: str
    entities: list[str] | None = None
    score_threshold: float | None = None


_decode = msgspec.json.Decoder(_Analysis).decode


class RecogniserOptions(NamedTuple):
    """Where the server listens, and what it takes."""

    host: str
    port: int | None
    socket: Path | None
    max_body: int
    exit_with_parent: bool
    key: str
    """The key that requests need; none if empty."""


class RecogniserHandler:
    """Answers `/health` and `/analyze`. Texts are analyzed one after another, in a thread."""

    def __init__(self, analyzer: Analyzer) -> None:
        self._analyzer = analyzer
        self._thread = ThreadPoolExecutor(1, "analyze")

    async def __call__(self, http: Request) -> Response:
        """Answer one request."""
        if (http.method, http.target) == ("GET", b"/health"):
            return Response(200, _JSON, b'{"status":"ok"}')
        if http.target != b"/analyze":
            return _refused(404, "This server has the paths /health and /analyze.")
        if http.method != "POST":
            return _refused(405, "Send POST to /analyze.")
        try:
            given = _decode(await http.read())
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return _refused(400, f"The body is no request for an analysis: {error}")
        if len(given.text) > MOST_TEXT:
            return _refused(413, f"The text has {len(given.text)} characters, and {MOST_TEXT} at most are analyzed.")
        loop = asyncio.get_running_loop()
        try:
            entities = await loop.run_in_executor(
                self._thread, self._analyzer.entities, given.text, given.language, given.entities, given.score_threshold
            )
        except ValueError as error:
            return _refused(400, str(error))
        except Exception:
            log.exception("a text was not analyzed")
            return _refused(500, "The text was not analyzed: the log of the server has the reason.")
        return Response(200, _JSON, _encode(entities))

    def close(self) -> None:
        """Begin no further text."""
        self._thread.shutdown(wait=False, cancel_futures=True)


async def run(options: RecogniserOptions, analyzer: Analyzer, languages: Sequence[str]) -> int:
    """Serve until a signal stops the server. Returns the exit status of the process."""
    handler = RecogniserHandler(analyzer)
    server = Server(keyed(handler, options.key), Limits(max_body=options.max_body))
    try:
        stop = stop_signal(exit_with_parent=options.exit_with_parent)
        await listen(server, options.socket, options.host, options.port, "names and places")
        log.info("analyzing %s", ", ".join(languages))
        await stop.wait()
        await server.drain(DRAIN)
    except CannotStart as error:
        log.error("%s", error)
        return 1
    finally:
        await server.aclose()
        handler.close()
    return 0


def _refused(status: int, message: str) -> Response:
    return Response(status, _JSON, _encode({"error": message}))
