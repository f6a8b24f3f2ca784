"""Traces of single requests: which are picked, what is written, and that nothing is lost or waited for."""

import json
from pathlib import Path
from typing import Any

import pytest

from adapters.errors import CallerError
from adapters.tensors import Inference, Inferred, Tensor
from runtimes.tensor.api.trace import RequestTrace, Tracer, TraceSettings

pytestmark = pytest.mark.plain
ON = {"trace_level": ["TIMESTAMPS"], "trace_rate": "1"}
INFERENCE = Inference("m", id="seven", inputs=[Tensor("IN", "INT32", (2,), b"\x01\0\0\0\x02\0\0\0")])


@pytest.fixture
def tracer(tmp_path: Path) -> Tracer:
    return Tracer(TraceSettings(str(tmp_path / "trace.json")))


def traced(tracer: Tracer, count: int, model: str = "m") -> int:
    """Let so many requests pass; how many were traced."""
    picked: list[RequestTrace] = []
    for _ in range(count):
        trace = tracer.begin(Inference(model), "1") if tracer.settings.any else None
        if trace is not None:
            picked.append(trace)
            tracer.end(trace)
    return len(picked)


def read(path: Path) -> Any:
    return json.loads(path.read_text())


async def test_every_so_many_requests_is_traced(tracer: Tracer) -> None:
    assert traced(tracer, 10) == 0
    tracer.update({"trace_level": ["TIMESTAMPS"], "trace_rate": "3"})
    assert traced(tracer, 10) == 3
    tracer.update({"trace_count": "2", "trace_rate": "1"})
    assert traced(tracer, 10) == 2
    await tracer.aclose()


async def test_the_written_trace(tracer: Tracer, tmp_path: Path) -> None:
    tracer.update({**ON, "trace_level": ["TIMESTAMPS", "TENSORS"]})
    trace = tracer.begin(INFERENCE, "1")
    assert trace is not None
    trace.times(REQUEST_START=1.0, REQUEST_END=1.5)
    trace.answered(Inferred("m", "1", outputs=[Tensor("OUT", "FP32", (1,), b"\0\0\xc0\x3f")]))
    tracer.end(trace)
    await tracer.aclose()
    head, given, times, answered = read(tmp_path / "trace.json")
    assert head == {"id": 1, "model_name": "m", "model_version": 1, "request_id": "seven"}
    assert given["tensor"] == {"name": "IN", "dtype": "INT32", "shape": "2", "data": "1,2"}
    assert answered["tensor"]["data"] == "1.5"
    start, end = times["timestamps"]
    assert (start["name"], end["name"]) == ("REQUEST_START", "REQUEST_END")
    assert end["ns"] - start["ns"] == pytest.approx(500_000_000, abs=1000)


async def test_a_model_may_be_traced_alone(tracer: Tracer) -> None:
    tracer.update(ON, "m")
    assert traced(tracer, 3) == 3
    assert traced(tracer, 3, "other") == 0
    assert tracer.settings.report("other")["trace_level"] == ["OFF"]
    tracer.update({"trace_level": None, "trace_rate": None}, "m")
    assert traced(tracer, 3) == 0
    await tracer.aclose()


async def test_a_file_for_every_so_many(tracer: Tracer, tmp_path: Path) -> None:
    tracer.update({**ON, "log_frequency": "2"})
    assert traced(tracer, 5) == 5
    await tracer.aclose()
    assert [len(read(tmp_path / f"trace.json.{at}")) for at in range(3)] == [2, 2, 1]


async def test_the_disk_is_not_always_there(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tracer = Tracer(TraceSettings(str(tmp_path / "nowhere" / "trace.json")))
    tracer.update(ON)
    assert traced(tracer, 1) == 1
    await tracer.aclose()
    assert "cannot be written" in caplog.text


@pytest.mark.parametrize(
    "changes",
    [
        {"colour": "blue"}, {"trace_file": "/nonexistent/trace"}, {"trace_level": ["ALL"]}, {"trace_level": 1},
        {"trace_rate": "-1"}, {"trace_rate": "x"}, {"trace_rate": True}, {"trace_rate": ["1", "2"]},
        {"trace_count": "-2"}, {"log_frequency": "9" * 30}, {"trace_mode": "opentelemetry"},
    ],
)  # fmt: skip
async def test_an_invalid_setting_changes_nothing(tracer: Tracer, changes: dict[str, object]) -> None:
    before = tracer.settings.report()
    with pytest.raises(CallerError):
        tracer.update({"trace_count": "5", **changes})
    assert tracer.settings.report() == before


async def test_without_a_file_nothing_can_be_turned_on() -> None:
    settings = TraceSettings()
    with pytest.raises(CallerError, match="--trace-file"):
        settings.update(ON)
    settings.update({"trace_level": ["OFF"], "trace_rate": ["5"]})
    assert settings.report()["trace_rate"] == "5"
    assert not settings.any
