import base64
import json
import math
import struct
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters.errors import BackendError, CallerError, ContextTooLong, TransportError
from adapters.fake import FakeAdapter, Script
from adapters.requests import EmbeddingRequest
from adapters.types import Usage
from adapters.wire.openai.chat import decode_embedding
from config.schema.config import EmbeddingsConfig
from gateway.features.embeddings.loading import embedders
from gateway.features.embeddings.texts import TextTokenizer, TokenizerError
from gateway.traffic.fleet.member import FleetError
from gateway.traffic.plan_state import PlanState
from tests.gateway.features.embeddings.words import WordModel, section, tokenizer_file
from tests.support.gateways import Rig, config, infer


def embedding_request(input_: Any, **fields: Any) -> EmbeddingRequest:
    return decode_embedding(json.dumps({"model": "chat", "input": input_, **fields}).encode())


class Embeddings(Rig):
    """A rig whose model makes embeddings."""

    def __init__(self, folder: Path, *fakes: FakeAdapter, limits: dict[str, Any] | None = None, **fields: Any) -> None:
        pools = [{"name": "main", "protocol": "oip-http", "endpoints": ["http://127.0.0.1:9"]}]
        route = {"to": "main", "retry": {"attempts": 1}, **fields.pop("route", {})}
        models = [{"name": "chat", "routes": [route], "embeddings": section(folder, **fields)}]
        tenants = [{"name": "acme", "models": ["*"], "limits": limits or {}}]
        made = config(pools=pools, models=models, tenants=tenants)
        plan_state = PlanState()
        plan_state.embedders = embedders(made)
        super().__init__(made, {"main": list(fakes)}, plan_state=plan_state)

    async def vectors(self, input_: Any, **fields: Any) -> list[Any]:
        record = self.record()
        answer = await self.core.handle(self.principal, embedding_request(input_, **fields), {}, record)
        self.assert_idle()
        assert answer.body is not None
        document = json.loads(answer.body)
        assert document["object"] == "list"
        assert [entry["index"] for entry in document["data"]] == list(range(len(document["data"])))
        assert document["usage"]["prompt_tokens"] == document["usage"]["total_tokens"] == answer.usage.prompt_tokens
        return [entry["embedding"] for entry in document["data"]]


async def test_vectors_have_the_order_of_their_texts(tmp_path: Path) -> None:
    model = WordModel()
    one = Embeddings(tmp_path, model, batch=2)
    vectors = await one.vectors(["a b c", "a", "b", "c d", "d"])
    assert [vector[0] for vector in vectors] == pytest.approx([13 / 5, 4 / 3, 5 / 3, 12 / 4, 7 / 3])
    assert sorted((request.rows, request.inference.inputs[0].shape) for request in model.batches) == [
        (1, (1, 5)), (2, (2, 3)), (2, (2, 4)),
    ]  # fmt: skip
    (record,) = one.log.records
    assert record.usage is not None
    tokens = 5 + 3 + 3 + 4 + 3
    assert record.usage == Usage(tokens, exact=True, rows=5, device_ms=6.0, bytes=record.usage.bytes)
    assert (record.pool, record.endpoint) == ("main", "main/0")


async def test_a_field_without_use_is_reported_or_refused_by_a_strict_route(tmp_path: Path) -> None:
    for strict in (False, True):
        one = Embeddings(tmp_path, WordModel(), route={"strict": strict})
        record, request = one.record(), embedding_request("a", new_field=1, user=None)
        if strict:
            with pytest.raises(CallerError, match="new_field"):
                await one.core.handle(one.principal, request, {}, record)
        else:
            await one.core.handle(one.principal, request, {}, record)
            assert record.ignored == ["new_field"]
        one.assert_idle()


@pytest.mark.parametrize(("pooling", "expected"), [("mean", 8 / 4), ("cls", 0), ("last", 1)])
async def test_pooling(tmp_path: Path, pooling: str, expected: float) -> None:
    one = Embeddings(tmp_path, WordModel(), pooling=pooling)
    (vector, _) = await one.vectors(["a b", "a b c d"])  # the first is filled up, and that must not count
    assert vector[0] == pytest.approx(expected)


async def test_a_vector_a_text_needs_no_pooling(tmp_path: Path) -> None:
    model = WordModel()
    model.pooled = True
    one = Embeddings(tmp_path, model, output="last_hidden_state")
    assert await one.vectors("a b") == [[0, 4, 1]]
    assert model.batches[0].inference.outputs[0].name == "last_hidden_state"


async def test_length_one_and_fewer_dimensions(tmp_path: Path) -> None:
    one = Embeddings(tmp_path, WordModel(), normalize=True)
    (whole,) = await one.vectors("a")
    (cut,) = await one.vectors("a", dimensions=2)
    assert math.hypot(*whole) == pytest.approx(1)
    assert math.hypot(*cut) == pytest.approx(1)
    assert len(cut) == 2
    assert cut[0] / cut[1] == pytest.approx(whole[0] / whole[1])
    with pytest.raises(CallerError, match="above the model's 3"):
        await one.vectors("a", dimensions=4)


async def test_both_forms_give_the_same_vectors(tmp_path: Path) -> None:
    one = Embeddings(tmp_path, WordModel())
    (plain,) = await one.vectors("a b c", encoding_format="float")
    (coded,) = await one.vectors("a b c", encoding_format="base64")
    assert list(struct.unpack("<3f", base64.b64decode(coded))) == pytest.approx(plain)


async def test_tokens_are_taken_as_they_are(tmp_path: Path) -> None:
    one = Embeddings(tmp_path, WordModel())
    assert await one.vectors([0, 3, 1]) == await one.vectors("a")
    assert await one.vectors([[0, 3, 1], [0, 4, 1]]) == await one.vectors(["a", "b"])
    with pytest.raises(CallerError, match="beyond the 7"):
        await one.vectors([7])


async def test_inputs_are_those_that_the_model_has(tmp_path: Path) -> None:
    model = WordModel(input_ids="INT32", token_type_ids="INT64")
    one = Embeddings(tmp_path, model)
    await one.vectors("a b")
    inputs = {tensor.name: tensor for tensor in model.batches[0].inference.inputs}
    assert {name: tensor.datatype for name, tensor in inputs.items()} == model.names
    assert not any(inputs["token_type_ids"].data)
    with pytest.raises(BackendError, match="no input `input_ids`"):
        await Embeddings(tmp_path, WordModel(tokens="INT64")).vectors("a")
    with pytest.raises(BackendError, match="FP32, which holds no tokens"):
        await Embeddings(tmp_path, WordModel(input_ids="FP32")).vectors("a")


async def test_a_long_text_is_refused_or_truncated(tmp_path: Path) -> None:
    with pytest.raises(ContextTooLong, match="5 tokens is longer than the 4"):
        await Embeddings(tmp_path, WordModel(), max_tokens=4).vectors("a b c")
    one = Embeddings(tmp_path, WordModel(), max_tokens=4, too_long="cut", pooling="last")
    assert await one.vectors("a b c") == [[1, 4, 1]]  # the end keeps its sign
    assert one.log.records[0].usage is not None
    assert one.log.records[0].usage.prompt_tokens == 4


WRONG: list[tuple[Any, dict[str, Any], str]] = [
    ([""], {}, "empty entry"),
    ([[]], {}, "empty entry"),
    ({"a": 1}, {}, "`input`"),
    ([1.5], {}, "`input`"),
    ([-1], {}, "must be a text"),
    ([["a"]], {}, "`input`"),
    (["a"] * 2049, {}, "2049 entries"),
    ("a", {"encoding_format": "hex"}, "`encoding_format`"),
    ("a", {"dimensions": 0}, "`dimensions`"),
]


@pytest.mark.parametrize(("input_", "fields", "message"), WRONG, ids=range(len(WRONG)))
async def test_invalid_requests_are_refused_with_a_reason(
    tmp_path: Path, input_: Any, fields: dict[str, Any], message: str
) -> None:
    model = WordModel()
    with pytest.raises(CallerError, match=message):
        await Embeddings(tmp_path, model).vectors(input_, **fields)
    assert not model.batches


async def test_one_that_fails_ends_the_others(tmp_path: Path) -> None:
    slow, broken = Script(latency=10.0), Script(latency=1.0, fault=TransportError("reset"))

    class Failing(WordModel):
        def __init__(self) -> None:
            super().__init__()
            self._scripts = chain([slow, broken, slow])

    model = Failing()
    one = Embeddings(tmp_path, model, batch=1)
    with pytest.raises(TransportError):
        await one.vectors(["a", "b", "c"])
    assert sorted(call.end for call in model.calls) == ["cancelled", "cancelled", "failed"]
    one.assert_idle()


async def test_garbage_is_no_vector(tmp_path: Path) -> None:
    model = WordModel()
    model.garbage = True
    with pytest.raises(BackendError, match="no vector a text or token"):
        await Embeddings(tmp_path, model).vectors("a")


async def test_limits_are_in_tokens_and_one_request_is_one(tmp_path: Path) -> None:
    one = Embeddings(tmp_path, WordModel(), batch=1, limits={"tokens": "1000/h", "requests": "10/h"})
    await one.vectors(["a", "b", "c"])
    assert (one.left("tokens"), one.left("requests")) == (1000 - 9, 9)


async def test_answers_can_be_cached(tmp_path: Path) -> None:
    model = WordModel()
    one = Embeddings(tmp_path, model, route={"cache": {}})
    assert await one.vectors("a") == [[pytest.approx(4 / 3), 3, 1]]
    answer = await one.core.handle(one.principal, embedding_request("a"), {}, one.record())
    assert answer.headers[0] == ("x-headrace-cache", "hit")
    assert len(model.batches) == 1


async def test_a_route_may_call_the_model_otherwise(tmp_path: Path) -> None:
    model = WordModel()
    await Embeddings(tmp_path, model, route={"rewrite": {"model": "theirs"}}).vectors("a")
    assert model.batches[0].model == "theirs"


async def test_tensors_go_through(tmp_path: Path) -> None:
    class Plain(WordModel):
        async def call(self, request: Any, call: Any) -> Any:
            return await FakeAdapter.call(self, request, call)

    one = Embeddings(tmp_path, Plain())
    answer = await one.core.handle(one.principal, infer(), {}, one.record())
    assert answer.body == b"data: {}\n\ndata: [DONE]\n\n"


def test_an_unloadable_tokenizer_is_reported_before_any_request(tmp_path: Path) -> None:
    for text, message in ((None, "No such file"), ("{}", "tokenizer")):
        path = tmp_path / "broken.json"
        if text is not None:
            path.write_text(text)
        models = [{"name": "chat", "routes": [{"to": "main"}], "embeddings": {"tokenizer": str(path)}}]
        with pytest.raises(FleetError, match=f"model chat: embeddings: tokenizer .*{message}"):
            embedders(config(models=models))


def test_a_folder_will_do_and_a_new_file_counts(tmp_path: Path) -> None:
    tokenizer_file(tmp_path)
    folder = EmbeddingsConfig(tokenizer=str(tmp_path))
    assert TextTokenizer(folder)._vocabulary == 7
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(TokenizerError, match="No such file"):
        TextTokenizer(folder)


async def test_many_texts_are_made_tokens_beside_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.features.embeddings.texts.INLINE", 3)
    monkeypatch.setattr("gateway.features.embeddings.embed.INLINE", 3)
    one = Embeddings(tmp_path, WordModel())
    assert np.allclose(await one.vectors(["a b", "c"]), [[2, 4, 1], [2, 4, 1]])
