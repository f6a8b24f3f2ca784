"""The queue in front of the collector, on virtual time."""

import asyncio
import logging
from collections.abc import Mapping
from random import Random

import pytest

from adapters.spans import Attribute, SpanLog
from gateway.telemetry.traces import exporter as module
from gateway.telemetry.traces.collector import ExportError
from gateway.telemetry.traces.encoding import EndedTrace, encode
from gateway.telemetry.traces.exporter import BATCH, LAST_SECONDS, TRIES, Exporter
from tests.support.collectors import Scripted


def trace(spans: int = 1) -> EndedTrace:
    log = SpanLog(None, 1.0, lambda: 2.0)
    assert log.root
    for _ in range(spans - 1):
        log.begin("step", "internal", None, 1.0)
    return EndedTrace(log, 1e9, 3.0)


def exporter(collector: Scripted, most: int = 10_000) -> Exporter:
    return Exporter(collector, {"service.name": "headrace"}, most, Random(1))


AGAIN = ExportError("busy", again=True)


async def test_traces_are_sent_in_batches_within_a_second() -> None:
    made = exporter(collector := Scripted())
    running = asyncio.create_task(made.run())
    sent = [trace(3) for _ in range(BATCH + 10)]
    for one in sent:
        made.add(one)
    await asyncio.sleep(2)
    assert made.exported == BATCH + 10
    assert len(collector.calls) == 2
    spans = collector.received.spans
    assert [span.id for span in spans] == [span.id.hex() for one in sent for span in one.log.spans]
    assert {resource["service.name"] for resource in collector.received.resources} == {"headrace"}
    assert all(span.end == int((1e9 + 3.0) * 1e9) for span in spans)
    running.cancel()
    await made.aclose()
    assert collector.closed


@pytest.mark.parametrize("failures", range(TRIES))
async def test_an_export_is_repeated_while_the_collector_is_busy(failures: int) -> None:
    made = exporter(collector := Scripted(*[AGAIN] * failures))
    running = asyncio.create_task(made.run())
    made.add(trace())
    await asyncio.sleep(200)
    assert (made.exported, made.dropped, len(collector.calls)) == (1, 0, failures + 1)
    running.cancel()
    await made.aclose()


async def test_a_required_pause_is_respected() -> None:
    made = exporter(collector := Scripted(ExportError("busy", again=True, retry_after=60.0)))
    running = asyncio.create_task(made.run())
    made.add(trace())
    await asyncio.sleep(100)
    assert collector.calls[1] - collector.calls[0] >= 60.0
    running.cancel()
    await made.aclose()


@pytest.mark.parametrize("errors", [[ExportError("unauthorized", again=False)], [AGAIN] * TRIES])
async def test_a_refused_export_is_dropped_counted_and_logged_once(
    errors: list[ExportError], caplog: pytest.LogCaptureFixture
) -> None:
    made = exporter(collector := Scripted(*errors, *errors))
    running = asyncio.create_task(made.run())
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            made.add(trace())
            await asyncio.sleep(300)
    made.add(trace())
    await asyncio.sleep(5)
    assert (made.exported, made.dropped) == (1, 2)
    assert len(collector.calls) == 2 * len(errors) + 1
    assert len([message for message in caplog.messages if "traces are lost" in message]) == 1
    running.cancel()
    await made.aclose()


async def test_a_collector_that_hangs_costs_traces_and_no_memory() -> None:
    made = exporter(Scripted(1e9), most=500)
    running = asyncio.create_task(made.run())
    for _ in range(5000):
        made.add(trace())
        await asyncio.sleep(0.01)
    assert made.queued == 500
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert made.queued > 500, "a cancelled batch is lost"
    assert made.queued + made.dropped == 5000
    made._collector.ends = [1e9]  # type: ignore[attr-defined]
    began = asyncio.get_running_loop().time()
    await made.aclose()
    assert asyncio.get_running_loop().time() - began <= LAST_SECONDS + 0.1
    assert made.queued == 0


async def test_the_end_exports_the_queue() -> None:
    made = exporter(collector := Scripted())
    for _ in range(3 * BATCH):
        made.add(trace())
    await made.aclose()
    assert made.exported == 3 * BATCH
    assert len(collector.received.spans) == 3 * BATCH


class Texts:
    """The texts of a request; reading them fails."""

    size = 10

    def omit(self) -> None: ...

    async def attributes(self) -> dict[str, Attribute]:
        raise ValueError("no text")


@pytest.mark.parametrize("place", range(5))
async def test_a_trace_that_cannot_be_encoded_is_lost_alone(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = [trace() for _ in range(5)]

    def picky(resource: Mapping[str, str], traces: list[EndedTrace]) -> bytes:
        if sent[place] in traces:
            raise ValueError("no span")
        return encode(resource, traces)

    monkeypatch.setattr(module, "encode", picky)
    made = exporter(collector := Scripted())
    running = asyncio.create_task(made.run())
    sent[-1 - place].log.contents = ((sent[-1 - place].log.root, Texts()),)
    for one in sent:
        made.add(one)
    await asyncio.sleep(2)
    assert (made.exported, made.dropped, made.queued, made._held) == (4, 1, 0, 0)
    others = [one.log.root.id.hex() for one in sent if one is not sent[place]]
    assert [span.id for span in collector.received.spans] == others
    running.cancel()
    await made.aclose()
