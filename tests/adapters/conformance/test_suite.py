"""The suite finds what is wrong: it is examined with servers that are."""

from typing import Any

import pytest

from adapters.conformance import requests
from adapters.conformance.bench import Check
from adapters.conformance.matrix import Cell, decode, encode
from adapters.conformance.subject import Subject, pool
from adapters.conformance.suite import CHECKS, FEATURES, examine
from adapters.http1.message import Response
from tests.support.correct_server import Model, listening
from tests.support.upstreams import Events


def subject(url: str, **fields: Any) -> Subject:
    return Subject(
        **{
            "system": "test",
            "version": "1",
            "pool": pool("openai", url),
            "right": requests.chat("m"),
            "is_right": requests.has_text,
            "stream": requests.chat("m", stream=True),
            "mistake": requests.chat("m", temperature="warm"),
            "signals": f"{url}/metrics",
            "lacks": dict.fromkeys(("metadata", "readiness", "load and unload"), "It has none."),
            **fields,
        }
    )


async def examined(model: Model, *features: str, **fields: Any) -> dict[str, Cell]:
    """The cells of the named features, or of all."""
    async with listening(model) as url:
        before = subject(url, **fields)
        chosen = [check for check in CHECKS if not features or check.feature in features]
        return {check.feature: await examine(check, before) for check in chosen}


async def test_a_correct_server_passes() -> None:
    cells = await examined(Model())
    assert tuple(cells) == FEATURES
    assert {name: cell.why for name, cell in cells.items() if cell.verdict == "failed"} == {}
    assert [name for name, cell in cells.items() if cell.verdict == "absent"] == [
        "metadata",
        "readiness",
        "load and unload",
    ]


async def test_faults_of_a_server_are_reported() -> None:
    model = Model()
    model.healthy, model.refuses, model.text = False, False, ""
    names = ("infer", "health", "unknown model", "bad input")
    assert {name: cell.why for name, cell in (await examined(model, *names)).items()} == {
        "infer": "the answer is not the right one",
        "health": "BackendError: The health check of /health answered 503.",
        "unknown model": "was answered",
        "bad input": "was answered",
    }


async def test_a_stream_of_too_few_pieces_and_a_stream_that_is_none() -> None:
    few = await examined(Model(), "stream", pieces=90)
    assert few["stream"].why == "a stream of 5 pieces, where 90 were expected"
    none = await examined(Model(), "stream", stream=requests.chat("m"))
    assert none["stream"].why == "was answered whole, though a stream was requested"


async def test_an_absence_without_a_reason_fails() -> None:
    cells = await examined(Model(), "load signals", "stream", "load and unload", signals="", stream=None, lacks={})
    assert {cell.verdict for cell in cells.values()} == {"failed"}
    assert cells["load signals"].why == "the subject defines neither its metrics nor the reason for having none"


async def test_a_reason_for_an_absence_is_verified() -> None:
    """An adapter that does answer such a question has the feature."""

    async def answers(bench: Any) -> None:
        raise AssertionError

    check = Check("metadata", "why", answers, absence=CHECKS[0].run)
    cell_of_check = await examine(check, subject("http://127.0.0.1:1", lacks={"metadata": "It has none."}))
    assert cell_of_check.verdict == "failed"


async def test_work_for_a_client_that_left_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.conformance.conduct.LEAVE_SECONDS", 0.3)

    async def always() -> float:
        return 1.0

    cells = await examined(Model(), "cancellation", running=always, long=requests.chat("m", stream=True))
    assert cells["cancellation"].why == "the server continues, though the client disconnected"


async def test_a_long_request_that_ends_between_two_looks_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a stream is noticed, also if the server has never reported the request as running."""
    model = Model()
    streams: list[Events] = []

    def answer(text: str) -> Response:
        streams.append(Events(text.split(" "), gap=60.0 if streams else 0.0))
        return Response(200, [("content-type", "text/event-stream")], streams[-1])

    async def running() -> float:
        return float(len(streams) > 1 and not streams[-1].closed)

    monkeypatch.setattr("tests.support.correct_server.stream", answer)
    cells = await examined(model, "cancellation", running=running, long=requests.chat("m", stream=True))
    assert cells["cancellation"].why == ""
    assert len(streams) == 2


async def test_a_server_that_never_reports_a_long_request_fails() -> None:
    async def never() -> float:
        return 0.0

    long = requests.chat("m", stream=True)
    cells = await examined(Model(), "cancellation", running=never, long=long)
    assert cells["cancellation"].why == "each of 3 long requests ended before the server reported it as running"


async def test_an_adapter_that_raises_anything_else_fails() -> None:
    async def crash(_: Any) -> None:
        raise KeyError("x")

    cell_of_check = await examine(Check("x", "why", crash), subject("http://127.0.0.1:1"))
    assert (cell_of_check.verdict, cell_of_check.why) == ("failed", "KeyError, which is no InferenceError: 'x'")


async def test_results_survive_encoding() -> None:
    cells = list((await examined(Model(), "infer", "health")).values())
    assert decode(encode(cells)) == cells
