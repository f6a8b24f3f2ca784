"""Reranking: which candidates are selected, and what is refused."""

import json
from typing import Any

import pytest

from adapters.errors import BackendError, CallerError
from adapters.fake import FakeAdapter, Script
from adapters.tensors import Tensor, split_bytes
from adapters.wire.oip import bodies as oip_bodies
from adapters.wire.oip.bodies import ModelMetadata, TensorMetadata
from tests.gateway.features.pipelines.rigs import chat_fake, floats, infers, rig, sent
from tests.support.gateways import Rig, chat

BOTH = {"query": "request.text", "candidates": "request.documents"}
DOCUMENTS = ["north", "east", "north-east"]


def vectors(*rows: tuple[float, ...]) -> FakeAdapter:
    """A server of embeddings, whose vectors are not in the order of the texts."""
    data = [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)]
    return FakeAdapter(Script(chunks=(json.dumps({"object": "list", "data": data[::-1], "usage": {}}).encode(),)))


DECLARED = ModelMetadata(
    "s", ["1"], "onnx", [TensorMetadata(name, "BYTES", (-1, 1)) for name in ("query", "candidate")], []
)


def scores(*shape: int, values: tuple[float, ...]) -> FakeAdapter:
    """A server of scores, which first answers the query for its metadata."""
    tensor = Tensor("score", "FP32", shape, floats("", *values).data)
    return infers(tensor, first=Script(chunks=(oip_bodies.encode(DECLARED),)))


def retrieval(rerank: dict[str, Any], fakes: dict[str, FakeAdapter], tensors: str = "") -> Rig:
    steps = [
        {"name": "best", "in": BOTH, "rerank": rerank},
        {"name": "prompt", "in": {"found": "best.candidates"}, "template": "{{ found | join('; ') }}"},
        {"name": "answer", "model": "m", "in": {"prompt": "prompt.text"}},
    ]
    return rig({"steps": steps}, {**fakes, "m": chat_fake("ok")}, tensors=tensors)


async def selected(one: Rig, documents: Any = DOCUMENTS) -> str:
    await one.core.handle(one.principal, chat("whole", documents=documents), {}, one.record())
    return str(sent(one, "m")["messages"][0]["content"])


async def test_the_nearest_candidates_are_selected_in_their_order() -> None:
    one = retrieval({"embed": "e", "top": 2}, {"e": vectors((0, 1), (0, 2), (1, 0), (3, 3))})
    assert await selected(one) == "north; north-east"
    assert sent(one, "e")["input"] == ["hello", *DOCUMENTS]


async def test_a_model_of_scores_receives_a_row_for_each_candidate() -> None:
    server = scores(3, 1, values=(0.1, 0.9, float("nan")))
    one = retrieval({"score": "s", "top": 2}, {"s": server}, tensors="s")
    assert await selected(one) == "east; north"
    received = sent(one, "s")
    assert received["candidate"].shape == (3, 1)
    assert split_bytes(received["candidate"].data, 3, "") == [text.encode() for text in DOCUMENTS]
    assert split_bytes(received["query"].data, 3, "") == [b"hello"] * 3


@pytest.mark.parametrize(
    ("documents", "message"),
    [("north", "is not a list"), ([1], "not a text"), ([""], "not a text"), (["x"] * 1025, "1024 at most")],
)
async def test_unusable_candidates_are_the_clients_mistake(documents: Any, message: str) -> None:
    one = retrieval({"embed": "e", "top": 2}, {"e": vectors((0, 1))})
    with pytest.raises(CallerError, match=message):
        await selected(one, documents)
    assert one.adapters["e"][0].calls == []


async def test_no_candidates_need_no_model() -> None:
    one = retrieval({"embed": "e", "top": 2}, {"e": vectors()})
    assert await selected(one, []) == ""
    assert one.adapters["e"][0].calls == []


@pytest.mark.parametrize(
    ("server", "message"),
    [
        (vectors((0, 1), (0, 2)), "2 vectors for 4 texts"),
        (vectors((0, 1), (0, 2), (1,), (1, 2)), "differ in length"),
        (vectors((0, 1), *[(float("nan"), 0.0)] * 3), "not a response with embeddings"),
        (FakeAdapter(Script(chunks=(b"{}",))), "not a response with embeddings"),
    ],
)
async def test_an_answer_that_cannot_order_is_the_servers_fault(server: FakeAdapter, message: str) -> None:
    one = retrieval({"embed": "e", "top": 2}, {"e": server})
    with pytest.raises(BackendError, match=message):
        await selected(one)


async def test_scores_of_another_shape_are_the_servers_fault() -> None:
    one = retrieval({"score": "s", "top": 2}, {"s": scores(2, values=(1, 2))}, tensors="s")
    with pytest.raises(BackendError, match="3 candidates need one number each"):
        await selected(one)
