"""The contract of both kinds of instances: answers, failures, streams."""

import asyncio
import logging
import textwrap
from pathlib import Path

import numpy as np
import pytest

from runtimes.tensor.configuration.model_config import InstanceGroup
from runtimes.tensor.instances import placement
from runtimes.tensor.interfaces import (
    InstanceLost,
    InvalidRow,
    ModelFailed,
    ModelLoadError,
    RowsFailed,
    StreamControl,
    Tensors,
)
from tests.runtimes.tensor.instances.support import (
    ADD_SUB,
    PATIENCE,
    Kind,
    add_sub,
    config,
    floats,
    one_to_one,
    outcome,
    outputs,
    running,
    write,
)
from tests.support.conditions import until

KINDS = ["thread", pytest.param("process", marks=pytest.mark.processes)]
pytestmark = pytest.mark.parametrize("kind", KINDS)


async def test_a_batch_is_answered_whole(kind: Kind, tmp_path: Path) -> None:
    async with running(add_sub(kind), write(tmp_path, ADD_SUB)) as instance:
        ones = {"INPUT0": np.arange(8, dtype=np.int32).reshape(2, 4), "INPUT1": np.ones((2, 4), np.int32)}
        twos = {"INPUT0": np.full((1, 4), 7, np.int32), "INPUT1": np.full((1, 4), 2, np.int32)}
        for _ in range(3):
            got = await outputs(instance, ones, twos)
            assert got["OUTPUT0"].tolist() == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 9, 9, 9]]
            assert got["OUTPUT1"].tolist() == [[-1, 0, 1, 2], [3, 4, 5, 6], [5, 5, 5, 5]]


async def test_megabytes_and_texts_cross_too(kind: Kind, tmp_path: Path) -> None:
    source = 'class Model:\n    def infer(self, inputs):\n        return {"y": inputs["x"][:, ::-1], "u": inputs["t"]}'
    shapes = ("FP64", (-1,)), ("BYTES", (-1,))
    model = config({"x": shapes[0], "t": shapes[1]}, {"y": shapes[0], "u": shapes[1]}, kind)
    async with running(model, write(tmp_path, source)) as instance:
        for length in (300_000, 1, 700_000, 0):
            x = np.random.default_rng(length).random((2, length))
            t = np.array([[b"\0" * length], [b"\xff"]], dtype=object)
            got = await outputs(instance, {"x": x[:1], "t": t[:1]}, {"x": x[1:], "t": t[1:]})
            np.testing.assert_array_equal(got["y"], x[:, ::-1])
            assert got["u"].tolist() == t.tolist()


@pytest.mark.parametrize("length", [10, 50_000, 3_000_000])
async def test_an_answer_is_unchanged_by_the_next(kind: Kind, tmp_path: Path, length: int) -> None:
    source = 'class Model:\n    def infer(self, inputs):\n        return {"y": inputs["x"] + 1}'
    async with running(one_to_one(kind, "FP32", (-1,)), write(tmp_path, source)) as instance:
        first = await outputs(instance, {"x": np.full((1, length), 1, np.float32)})
        second = await outputs(instance, {"x": np.full((1, length), 7, np.float32)})
        assert set(first["y"].ravel().tolist()) == {2}
        assert set(second["y"].ravel().tolist()) == {8}


async def test_a_model_may_write_into_its_inputs_if_it_is_given_them_alone(kind: Kind, tmp_path: Path) -> None:
    """Two members are joined into memory that is new."""
    source = 'class Model:\n    def infer(self, inputs):\n        inputs["x"] += 1\n        return {"y": inputs["x"]}'
    async with running(one_to_one(kind), write(tmp_path, source)) as instance:
        sent = floats([1, 2])
        got = await outputs(instance, {"x": sent}, {"x": sent})
        assert got["y"].tolist() == [[2, 3], [2, 3]]
        assert sent.tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise ValueError('no such word')", "^ValueError: no such word$"),
        ("raise RuntimeError", "^RuntimeError$"),
        ("import sys; sys.exit(3)", "^SystemExit: 3$"),
        ("raise KeyboardInterrupt", "^KeyboardInterrupt$"),
        ("raise MemoryError", "^MemoryError$"),
        ("raise ValueError('x' * 100_000)", "^ValueError: x{900,}$"),
        ("raise ValueError(chr(0xD800))", "^ValueError: "),
        ("return None", "must return a dict"),
        ("return {}", "did not return its output `y`"),
        ("return {'y': inputs['x'][:0]}", "output `y` has 0 rows for a batch of 1"),
        ("return {'y': inputs['x'].astype('f8')}", "output `y` is FP32, and the model returned FP64"),
        ("return {'y': inputs['x']}, {5: 'no'}", "an error for row 5 of a batch of 1"),
        ("return {'y': inputs['x']}, ['no']", "a dict from rows to errors"),
    ],
)
async def test_any_mistake_of_a_model_is_reported_and_the_next_batch_is_answered(
    kind: Kind, tmp_path: Path, body: str, message: str
) -> None:
    source = f"""
    class Model:
        def infer(self, inputs):
            if inputs["x"][0, 0] == 0:
                {body}
            return {{"y": inputs["x"]}}
    """
    async with running(one_to_one(kind), write(tmp_path, source)) as instance:
        with pytest.raises(ModelFailed, match=message):
            await outputs(instance, {"x": floats([0, 0])})
        assert (await outputs(instance, {"x": floats([1, 0])}))["y"].tolist() == [[1, 0]]
        assert instance.restarts == 0


async def test_rows_fail_alone(kind: Kind, tmp_path: Path) -> None:
    source = """
    class Model:
        def infer(self, inputs):
            x = inputs["x"]
            return {"y": x * 2}, {
                row: InvalidRow("no picture") if x[row, 0] < -1 else ValueError("negative")
                for row in range(len(x)) if x[row, 0] < 0
            }
    """
    source = "from runtimes.tensor.interfaces import InvalidRow\n" + textwrap.dedent(source)
    async with running(one_to_one(kind), write(tmp_path, source)) as instance:
        got = await outcome(instance, {"x": floats([1, 1])}, {"x": floats([-1, 0], [3, 3], [-2, 0])})
        assert isinstance(got, RowsFailed)
        assert got.errors == {1: "negative", 3: "no picture"}
        assert [type(error) for _, error in sorted(got.errors.items())] == [str, InvalidRow]
        assert got.outputs["y"][[0, 2]].tolist() == [[2, 2], [6, 6]]
        assert (await outputs(instance, {"x": floats([1, 1])}))["y"].tolist() == [[2, 2]]


async def test_an_exception_of_a_model_is_logged_with_its_line(
    kind: Kind, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "runtimes.tensor.models")
    source = "class Model:\n    def infer(self, inputs):\n        return {'y': 1 / 0}"
    async with running(one_to_one(kind), write(tmp_path, source)) as instance:
        assert isinstance(await outcome(instance, {"x": floats([1, 1])}), ModelFailed)
        await until(lambda: "return {'y': 1 / 0}" in caplog.text)
        assert "model_0_0: " in caplog.text


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "class Model:\n    def __init__(self): raise OSError('lost')\n    def infer(self, inputs): ...",
            "^OSError: lost$",
        ),
        ("import sys; sys.exit(1)", "^SystemExit: 1$"),
        ("class Model: pass", "class `Model` has no `infer`"),
        ("def infer(", "SyntaxError"),
    ],
)
async def test_the_error_of_a_model_that_cannot_be_loaded_has_the_reason(
    kind: Kind, tmp_path: Path, source: str, message: str
) -> None:
    with pytest.raises(ModelLoadError, match=message):
        await placement.start(one_to_one(kind), write(tmp_path, source))


async def test_one_copy_that_cannot_be_loaded_ends_the_others(kind: Kind, tmp_path: Path) -> None:
    source = f"""
    from pathlib import Path
    class Model:
        def __init__(self):
            Path({str(tmp_path)!r}, "first").mkdir()
        def infer(self, inputs):
            return {{"y": inputs["x"]}}
        def close(self):
            Path({str(tmp_path)!r}, "closed").touch()
    """
    model = one_to_one(kind, group=InstanceGroup(count=2, placement=kind))
    with pytest.raises(ModelLoadError, match="FileExistsError"):
        await placement.start(model, write(tmp_path, source))
    assert (tmp_path / "first").exists()


async def test_closing_lets_the_model_clean_up(kind: Kind, tmp_path: Path) -> None:
    source = f"""
    from pathlib import Path
    class Model:
        def infer(self, inputs):
            return {{"y": inputs["x"]}}
        def close(self):
            Path({str(tmp_path)!r}, "closed").touch()
    """
    async with running(one_to_one(kind), write(tmp_path, source)) as instance:
        await outputs(instance, {"x": floats([1, 1])})
    assert (tmp_path / "closed").exists()
    assert isinstance(await outcome(instance, {"x": floats([1, 1])}), InstanceLost)


COUNT = """
class Model:
    def infer(self, inputs):
        try:
            for number in range(int(inputs["x"][0, 0])):
                if number == 90:
                    raise ValueError("not beyond 90")
                yield {"y": inputs["x"] * number}
        finally:
            print("the generator was closed")
"""


class Reader:
    """The reader of a stream."""

    def __init__(self) -> None:
        self.got: list[float] = []
        self.end: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        self.more = asyncio.Event()
        self.stream: StreamControl

    def response(self, outputs: Tensors) -> None:
        self.got.append(float(outputs["y"][0, 1]))
        self.more.set()

    async def ended(self) -> BaseException | None:
        async with asyncio.timeout(PATIENCE):
            return await self.end


async def test_a_stream_brings_each_response_and_then_its_end(kind: Kind, tmp_path: Path) -> None:
    async with running(one_to_one(kind, decoupled=True), write(tmp_path, COUNT)) as instance:
        for count, failed in ((50, None), (0, None), (100, ModelFailed), (3, None)):
            reader = Reader()
            reader.stream = instance.stream({"x": floats([count, 2])}, reader.response, reader.end.set_result)
            end = await reader.ended()
            assert reader.got == [2.0 * n for n in range(min(count, 90))]
            assert isinstance(end, failed) if failed else end is None
            reader.stream.stop()  # too late, and harmless


async def test_a_stream_that_is_stopped_closes_the_generator(
    kind: Kind, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(one_to_one(kind, decoupled=True), write(tmp_path, COUNT)) as instance:
        reader = Reader()

        def response(outputs: Tensors) -> None:
            reader.response(outputs)
            if len(reader.got) == 3:
                reader.stream.stop()

        reader.stream = instance.stream({"x": floats([80, 1])}, response, reader.end.set_result)
        assert await reader.ended() is None
        assert reader.got == [0, 1, 2]
        again = Reader()
        again.stream = instance.stream({"x": floats([2, 1])}, again.response, again.end.set_result)
        assert await again.ended() is None
        assert again.got == [0, 1]


async def test_a_stream_that_is_paused_waits(kind: Kind, tmp_path: Path) -> None:
    async with running(one_to_one(kind, decoupled=True), write(tmp_path, COUNT)) as instance:
        reader = Reader()

        def response(outputs: Tensors) -> None:
            reader.response(outputs)
            reader.stream.pause()

        reader.stream = instance.stream({"x": floats([4, 1])}, response, reader.end.set_result)
        for number in range(4):
            async with asyncio.timeout(PATIENCE):
                await reader.more.wait()
            reader.more.clear()
            for _ in range(20):
                await asyncio.sleep(0)
            assert len(reader.got) == number + 1
            assert number == 3 or not reader.end.done()
            reader.stream.resume()
        assert await reader.ended() is None


async def test_a_stream_that_is_stopped_at_once_brings_nothing(kind: Kind, tmp_path: Path) -> None:
    async with running(one_to_one(kind, decoupled=True), write(tmp_path, COUNT)) as instance:
        reader = Reader()
        reader.stream = instance.stream({"x": floats([80, 1])}, reader.response, reader.end.set_result)
        reader.stream.stop()
        assert await reader.ended() is None
        assert reader.got == []


async def test_closing_ends_a_stream(kind: Kind, tmp_path: Path) -> None:
    reader = Reader()
    async with running(one_to_one(kind, decoupled=True), write(tmp_path, COUNT)) as instance:
        reader.stream = instance.stream({"x": floats([80, 1])}, reader.response, reader.end.set_result)
        reader.stream.pause()
    assert isinstance(await reader.ended(), InstanceLost)
