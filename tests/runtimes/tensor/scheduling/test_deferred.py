"""Inputs that are padded or converted off the loop, and outputs that are cut there, equal those of the plain path."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.tensors import Inference, Tensor, join_bytes
from runtimes.tensor.configuration.model_config import DynamicBatching, ModelConfig, ResponseCache, TensorSpec
from runtimes.tensor.datatypes import DTYPES
from runtimes.tensor.deferred_input import is_deferred
from runtimes.tensor.interfaces import Array, Batch, Done, Tensors
from runtimes.tensor.schedulers import make_scheduler
from runtimes.tensor.scheduling import batcher, intake, outlet
from runtimes.tensor.scheduling.batcher import Batcher, rows_of
from runtimes.tensor.scheduling.cached import ResponseStore
from runtimes.tensor.scheduling.intake import Intake
from runtimes.tensor.scheduling.outlet import ResponseOutlet, UnfinishedOutputs
from runtimes.tensor.scheduling.pending import PreparedRequest
from runtimes.tensor.text_index import index
from runtimes.tensor.texts import as_array, expanded, joined, packed
from tests.runtimes.tensor.scheduling.instances import VirtualInstance, crossed

pytestmark = pytest.mark.plain
PADS = (2, 5)
LENGTHS = st.integers(0, 6)


@contextmanager
def sizes(large: int) -> Iterator[None]:
    """Arrays of so many bytes count as large."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (intake, outlet, batcher):
            patch.setattr(module, "LARGE", large)
        yield


def model(datatype: str, *, batched: bool) -> ModelConfig:
    """An input of two dimensions, padded; the output has the same."""
    spec = TensorSpec("T", datatype, (-1, -1))
    pads = DynamicBatching(pad_to={"T": PADS})
    return ModelConfig("m", "test", (spec,), (spec,), 4 * batched, dynamic_batching=pads)


@st.composite
def tensors(draw: st.DrawFn, datatype: str, rows: int | None) -> Tensor:
    """Some tensor of the datatype, at any place of its buffer."""
    lengths = draw(LENGTHS), draw(LENGTHS)
    shape = lengths if rows is None else (rows, *lengths)
    count = prod(shape)
    if datatype == "BYTES":
        data = join_bytes(draw(st.lists(st.binary(max_size=3), min_size=count, max_size=count)))
    else:
        size = count * DTYPES[datatype].itemsize
        data = draw(st.binary(min_size=size, max_size=size))
    offset = draw(st.integers(0, 7))
    return Tensor("T", datatype, shape, memoryview(bytes(offset) + data)[offset:])


def read(config: ModelConfig, tensor: Tensor, large: int) -> PreparedRequest:
    with sizes(large):
        return Intake(config).read(Inference("m", inputs=[tensor]))


def through_a_process(members: list[Tensors]) -> Array:
    """What the process of a model receives."""
    return expanded(crossed(members)["T"])


def same(one: Array, other: Array) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def equal(one: Array, other: Array) -> bool:
    return one.tolist() == other.tolist() and one.shape == other.shape if one.dtype == object else same(one, other)


@given(st.data(), st.sampled_from(sorted(DTYPES)), st.booleans())
def test_a_deferred_input_is_the_padded_one(data: st.DataObject, datatype: str, batched: bool) -> None:
    config = model(datatype, batched=batched)
    tensor = data.draw(tensors(datatype, data.draw(st.integers(1, 4)) if batched else None))
    plain, later = read(config, tensor, 1 << 40), read(config, tensor, 0)
    assert (plain.rows, plain.key, plain.cuts) == (later.rows, later.key, later.cuts)
    assert not is_deferred(plain.inputs["T"])
    assert is_deferred(later.inputs["T"]) == (plain.inputs["T"].shape != tensor.shape or datatype == "BOOL")
    assert equal(expanded(later.inputs["T"]), plain.inputs["T"])
    assert equal(through_a_process([later.inputs]), plain.inputs["T"])


@settings(max_examples=50)
@given(st.data(), st.sampled_from(sorted(DTYPES)))
def test_rows_of_deferred_inputs_join_as_the_padded_ones_do(data: st.DataObject, datatype: str) -> None:
    """Any rows of several requests, some deferred and some not, on a thread and in a process."""
    config = model(datatype, batched=True)
    plain: list[Array] = []
    mixed: list[Array] = []
    for _ in range(data.draw(st.integers(1, 4))):
        rows = data.draw(st.integers(1, 3))
        tensor = data.draw(tensors(datatype, rows))
        start = data.draw(st.integers(0, rows - 1))
        stop = data.draw(st.integers(start + 1, rows))
        whole = read(config, tensor, 1 << 40).inputs["T"]
        one = read(config, tensor, data.draw(st.sampled_from([0, 1 << 40]))).inputs["T"]
        if plain and whole.shape[1:] != plain[0].shape[1:]:
            continue
        plain.append(rows_of(whole, rows, start, stop))
        mixed.append(rows_of(one, rows, start, stop))
    expected = np.concatenate(plain)
    assert equal(joined(mixed), expected)
    assert equal(through_a_process([{"T": array} for array in mixed]), expected)


@pytest.mark.processes
async def test_large_texts_are_padded_in_binary_form() -> None:
    config = model("BYTES", batched=True)
    texts = [b"x" * (at % 7) for at in range(3 * 3 * 4000)]
    tensor = Tensor("T", "BYTES", (3, 3, 4000), join_bytes(texts))
    inference = Inference("m", inputs=[tensor])
    plain = Intake(config).read(inference).inputs["T"]
    await index(inference)
    later = Intake(config).read(inference).inputs["T"]
    assert bool(is_deferred(later))
    assert equal(expanded(later), expanded(plain))
    assert equal(through_a_process([{"T": later[1:2]}, {"T": later}]), joined([plain[1:2], plain]))


# ── outputs ───────────────────────────────────────────────────────────────────────────────────────────


class Echo(VirtualInstance):
    """Its outputs are its inputs, in any form."""

    def __init__(self, form: Callable[[Tensors], Tensors]) -> None:
        super().__init__()
        self._form = form

    def start(self, batch: Batch, done: Done) -> None:
        self.batches.append(list(batch.rows))
        inputs = {name: joined([member[name] for member in batch.members]) for name in batch.members[0]}
        asyncio.get_running_loop().call_soon(done, self._form(inputs))


async def finished(outputs: list[Tensor]) -> list[Tensor]:
    return await outputs.finished() if isinstance(outputs, UnfinishedOutputs) else outputs


def plain_data(outputs: list[Tensor]) -> list[tuple[str, tuple[int, ...], bytes]]:
    return [(tensor.name, tensor.shape, bytes(tensor.data)) for tensor in outputs]


@pytest.mark.parametrize("datatype", sorted(DTYPES))
@pytest.mark.parametrize("batched", [True, False])
async def test_a_large_output_is_cut_back_as_a_small_one_is(datatype: str, batched: bool) -> None:
    """Each request of a batch, for all lengths that a dimension can be padded from."""
    config = model(datatype, batched=batched)
    for height in range(6):
        for width in range(6):
            shape = (2, height, width) if batched else (height, width)
            count = prod(shape)
            data = join_bytes([b"%d" % at for at in range(count)]) if datatype == "BYTES" else None
            tensor = Tensor("T", datatype, shape, data or bytes(count * DTYPES[datatype].itemsize))
            members = [read(config, tensor, 1 << 40)] * (1 + batched)
            outputs: Any = {"T": joined([member.inputs["T"] for member in members])}
            answers = []
            for large, form in ((1 << 40, outputs), (0, outputs), (0, in_binary_form(outputs))):
                with sizes(large):
                    answers.append([await finished(answer) for answer in ResponseOutlet(config).split(form, members)])
            assert [plain_data(answer) for answer in answers[0]] == [[("T", shape, bytes(tensor.data))]] * len(members)
            assert [[plain_data(one) for one in answer] for answer in answers[1:]] == [
                [plain_data(one) for one in answers[0]]
            ] * 2


def in_binary_form(outputs: Tensors) -> Tensors:
    return {name: as_array(packed(array)) if array.dtype == object else array for name, array in outputs.items()}


@pytest.mark.parametrize("large", [0, 1 << 40])
@pytest.mark.parametrize("datatype", ["FP32", "BYTES"])
async def test_the_parts_of_a_cut_request_join_to_its_response(datatype: str, large: int) -> None:
    """A request of more rows than a batch has, padded and cut back, some of its parts in binary form."""
    config = model(datatype, batched=True)
    data = join_bytes([b"%d" % at for at in range(30)]) if datatype == "BYTES" else np.arange(30, dtype="<f4").tobytes()
    tensor = Tensor("T", datatype, (10, 1, 3), data)
    with sizes(large):
        instance = Echo(in_binary_form if large else dict)
        batcher = Batcher(config, [instance])
        first, second = await asyncio.gather(*[batcher.infer(Inference("m", inputs=[tensor])) for _ in range(2)])
        assert isinstance(first, UnfinishedOutputs) == (large == 0 or datatype == "BYTES")
        assert plain_data(await finished(first)) == plain_data(await finished(second)) == [("T", (10, 1, 3), data)]
    await batcher.aclose()


async def test_callers_of_one_computation_share_one_copy() -> None:
    """Identical requests of a model with a cache: the copy is made once, and stored."""
    config = dataclasses.replace(model("FP32", batched=True), response_cache=ResponseCache(True, 0))
    store = ResponseStore(1 << 20)
    instance = Echo(dict)
    with sizes(0):
        scheduler = make_scheduler(config, [instance], None, store)
        data = np.arange(6, dtype="<f4").tobytes()
        requests = [Inference("m", inputs=[Tensor("T", "FP32", (2, 1, 3), data)]) for _ in range(3)]
        responses = await asyncio.gather(*[scheduler.infer(request) for request in requests])
        first, *others = responses
        assert isinstance(first, UnfinishedOutputs)
        assert all(other is first for other in others)
        assert [plain_data(await finished(response)) for response in responses] == [[("T", (2, 1, 3), data)]] * 3
        async with asyncio.timeout(300):
            while len(store) == 0:
                await asyncio.sleep(0)
        assert plain_data(await scheduler.infer(requests[0])) == [("T", (2, 1, 3), data)]
        assert instance.batches == [[2]]
        await scheduler.aclose()
