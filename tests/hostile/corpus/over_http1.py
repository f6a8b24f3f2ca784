"""One case of HTTP/1.1 on one connection, and the defect of the answer."""

import asyncio

import httptools

from tests.hostile.corpus.cases import CANARY, Case

PATIENCE = 300.0
"""Seconds until a connection counts as not ended."""


class Responses:
    """The statuses of a connection's whole responses; 1xx is none."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self._parser = httptools.HttpResponseParser(self)

    def on_message_complete(self) -> None:
        if (status := self._parser.get_status_code()) >= 200:
            self.statuses.append(status)

    def feed(self, data: bytes) -> None:
        self._parser.feed_data(data)


async def play(case: Case, host: str, port: int) -> str:
    """Why the server fails the case; empty when it passes."""
    reader, writer = await asyncio.open_connection(host, port)
    responses, received = Responses(), b""
    try:
        async with asyncio.timeout(PATIENCE):
            sending = asyncio.create_task(_send(writer, case.sent + CANARY))
            try:
                while data := await reader.read(65536):
                    received += data
                    responses.feed(data)
            except ConnectionError:
                pass  # it closed while more was on its way
            await sending
    except TimeoutError:
        return f"the connection stays open; it received {received[:200]!r}"
    except httptools.HttpParserError as error:
        if case.sent.startswith(b"PRI "):
            return ""  # a server that speaks HTTP/2 on this port answers with frames
        return f"the response is no HTTP/1.1 ({error}): {received[:200]!r}"
    finally:
        writer.transport.abort()
    return judge(case, responses.statuses)


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    try:
        writer.write(data)
        await writer.drain()
    except (ConnectionError, RuntimeError):
        pass


def judge(case: Case, statuses: list[int]) -> str:
    """The canary is answered only if the case is a whole request and the connection may continue."""
    expected = 2 if case.expect == "answered" else 1
    if len(statuses) != expected:
        return f"{len(statuses)} responses instead of {expected}: {statuses}"
    first = statuses[0]
    if case.expect == "refused":
        exact = case.status is not None and not case.in_body
        if first < 400 or (exact and first != case.status):
            return f"status {first} instead of {case.status or '400 or more'}"
    elif first in (408, 413, 431) or first >= 500:
        return f"status {first} for a request that is right"
    return ""
