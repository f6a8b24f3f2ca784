"""Collectors that hang, refuse, close or send garbage, over real sockets: a trace is exported or counted as lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.spans import SpanLog
from config.schema.telemetry import TracesConfig
from gateway.telemetry.traces import exporter as module
from gateway.telemetry.traces.collector import ExportError, collector_of
from gateway.telemetry.traces.encoding import EndedTrace
from gateway.telemetry.traces.exporter import LONGEST_PAUSE, Exporter
from tests.support.collectors import Scripted

TIMEOUT = "300ms"


def http(status: int, body: bytes = b"", fields: bytes = b"") -> bytes:
    return b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n%b\r\n%b" % (status, len(body), fields, body)


answers = (
    st.just(http(200))
    | st.builds(http, st.sampled_from([400, 401, 404, 429, 500, 502, 503, 504]), st.binary(max_size=50))
    | st.builds(http, st.just(200), st.binary(max_size=200))
    | st.builds(
        lambda after: http(429, fields=b"retry-after: %b\r\n" % after),
        st.sampled_from([b"0", b"-1", b"x", b"\xb2", b"9" * 30]),
    )
    | st.binary(max_size=300)
    | st.sampled_from([None, b"", b"HTTP/1.1 200 X\r\ncontent-length: 99999999\r\n\r\nx", b"HTTP/1.1 200 X\r\n"])
)
"""Bytes that a collector sends for a request; None hangs."""


@asynccontextmanager
async def hostile(script: list[bytes | None]) -> AsyncIterator[int]:
    """A server that sends the script, one entry for each read; then it closes every connection."""

    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        with suppress(OSError, asyncio.CancelledError):
            while await reader.read(65536):
                answer = script.pop(0) if script else b""
                if answer is None:
                    await asyncio.sleep(3600)
                if not answer:
                    break
                writer.write(answer)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


def trace() -> EndedTrace:
    return EndedTrace(SpanLog(None, 1.0, lambda: 2.0), 0.0, 3.0)


@pytest.mark.parametrize("scheme", ["http", "grpc"])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(script=st.lists(answers, max_size=6), count=st.integers(1, 40), most=st.integers(1, 30))
async def test_every_trace_is_exported_or_counted(
    monkeypatch: pytest.MonkeyPatch, scheme: str, script: list[bytes | None], count: int, most: int
) -> None:
    for name, value in (("FIRST_WAIT", 0.0), ("INTERVAL", 0.001), ("LAST_SECONDS", 2.0), ("LONGEST_PAUSE", 0.01)):
        monkeypatch.setattr(module, name, value)
    async with hostile(script) as port:
        collector = collector_of(TracesConfig(to=f"{scheme}://127.0.0.1:{port}", timeout=TIMEOUT))
        made = Exporter(collector, {"service.name": "x"}, most, Random(1))
        running = asyncio.create_task(made.run())
        for number in range(count):
            made.add(trace())
            assert made.queued <= most
            if number % 7 == 0:
                await asyncio.sleep(0.001)
        async with asyncio.timeout(300):
            while made.exported + made.dropped < count:
                await asyncio.sleep(0.005)
                assert not running.done(), "the exporter has failed"
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await made.aclose()
    assert made.exported + made.dropped == count
    assert made.queued == 0


@pytest.mark.parametrize("pause", [1e9, float("inf"), LONGEST_PAUSE])
async def test_no_collector_stops_the_export_for_long(pause: float) -> None:
    made = Exporter(collector := Scripted(ExportError("busy", again=True, retry_after=pause)), {}, 10, Random(1))
    running = asyncio.create_task(made.run())
    made.add(trace())
    await asyncio.sleep(LONGEST_PAUSE + 5)
    assert made.exported == 1
    assert len(collector.calls) == 2
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
