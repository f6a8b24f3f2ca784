"""Tokens of texts, and texts of tokens."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from adapters.errors import CallerError, ContextTooLong, StepFailed
from adapters.fake import FakeAdapter, Script
from adapters.requests import ModelQuery
from adapters.tensors import Tensor, join_bytes
from adapters.wire.oip import bodies as oip_bodies
from adapters.wire.oip.bodies import ModelMetadata
from config.schema.pipelines.leaves import DetokenizeConfig, TokenizeConfig
from gateway.features.pipelines import resources
from gateway.features.pipelines.tokens import DetokenizeNode, TokenizeNode, rows_of
from gateway.features.pipelines.values import elements_of
from gateway.traffic.fleet.member import FleetError
from tests.gateway.features.embeddings.words import tokenizer_file
from tests.gateway.features.pipelines.rigs import infer, infers, outputs, rig, sent
from tests.support.gateways import Rig, config


def special(folder: Path) -> str:
    """The file of a tokenizer with special tokens: 0, 1, and 7 for padding."""
    made = Tokenizer.from_file(str(tokenizer_file(folder)))
    made.add_special_tokens(["[CLS]", "[SEP]", "[PAD]"])
    made.save(str(folder / "tokenizer.json"))
    return str(folder / "tokenizer.json")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    return special(tmp_path_factory.mktemp("tokenizer"))


def texts(*values: str) -> Tensor:
    return Tensor("TEXT", "BYTES", (len(values),), join_bytes([value.encode() for value in values]))


def pipeline(folder: Path, **tokenize: Any) -> dict[str, Any]:
    file = special(folder)
    return {
        "steps": [
            {"name": "tokens", "in": {"text": "request.TEXT"}, "tokenize": {"tokenizer": file, **tokenize}},
            {"name": "m", "model": "m", "in": {"input_ids": "tokens.ids", "attention_mask": "tokens.mask"}},
            {"name": "words", "in": {"ids": "m.ids"}, "detokenize": {"tokenizer": file}},
        ],
        "out": {"text": "words.text"},
    }


def language(folder: Path, *ids: int, **tokenize: Any) -> Rig:
    data = b"".join(value.to_bytes(8, "little") for value in ids)
    return rig(pipeline(folder, **tokenize), {"m": infers(Tensor("ids", "INT64", (1, len(ids)), data))}, tensors="m")


async def test_texts_are_padded_rows_and_tokens_are_texts_again(tmp_path: Path) -> None:
    one = language(tmp_path, 0, 5, 6, 1, pad_id=7)
    answer = await one.core.handle(one.principal, infer(texts("a b", "c")), {}, one.record())
    received = sent(one, "m")
    assert received["input_ids"].shape == (2, 4)
    assert elements_of(received["input_ids"]) == [0, 3, 4, 1, 0, 5, 1, 7]
    assert elements_of(received["attention_mask"]) == [1, 1, 1, 1, 1, 1, 1, 0]
    assert elements_of((await outputs(answer))["text"]) == ["c d"]


async def test_a_client_of_tensors_reads_the_inputs_and_outputs(tmp_path: Path) -> None:
    metadata = oip_bodies.encode(ModelMetadata("m", ["1"], "onnx", [], []))
    one = rig(pipeline(tmp_path), {"m": FakeAdapter(Script(chunks=(metadata,)))}, tensors="m")
    described = await one.core.handle(one.principal, ModelQuery(model="whole"), {}, one.record())
    read = oip_bodies.decode_metadata(described.body or b"")
    assert [(tensor.name, tensor.datatype) for tensor in read.inputs] == [("TEXT", "BYTES")]
    assert [(tensor.name, tensor.datatype) for tensor in read.outputs] == [("text", "BYTES")]


async def test_a_long_text_is_refused_or_cut(tmp_path: Path) -> None:
    for text in ("a b c d", "a " * 5000):
        one = language(tmp_path, 3, max_tokens=4)
        with pytest.raises(ContextTooLong, match="4"):
            await one.core.handle(one.principal, infer(texts(text)), {}, one.record())
        one = language(tmp_path, 3, max_tokens=4, too_long="cut")
        await one.core.handle(one.principal, infer(texts(text)), {}, one.record())
        assert elements_of(sent(one, "m")["input_ids"])[-1] == 1
        assert sent(one, "m")["input_ids"].shape == (1, 4)


async def test_unusable_inputs_are_errors_of_their_origin(tmp_path: Path) -> None:
    one = language(tmp_path, 3)
    with pytest.raises(CallerError, match="not text"):
        await one.core.handle(
            one.principal, infer(Tensor("TEXT", "BYTES", (1,), join_bytes([b"\xff"]))), {}, one.record()
        )
    for ids in ((8,), (-1 % 2**63,)):
        one = language(tmp_path, *ids)
        with pytest.raises(StepFailed, match="outside of the 8"):
            await one.core.handle(one.principal, infer(texts("a")), {}, one.record())


def test_a_tokenizer_that_cannot_be_loaded_is_refused_before_it_is_in_force(tmp_path: Path) -> None:
    models = [{"name": "m", "routes": [{"to": "main"}]}, {"name": "whole", "pipeline": pipeline(tmp_path)}]
    resources.prepare(config(models=models))
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(FleetError, match=r"models\[1\].pipeline.steps\[0\].tokenize: tokenizer"):
        resources.prepare(config(models=models))


@given(st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=8), min_size=1, max_size=8))
def test_decoding_restores_every_batch(file: str, rows: list[list[str]]) -> None:
    made = TokenizeNode(TokenizeConfig(tokenizer=file, pad_id=7))._encoded([" ".join(row) for row in rows])
    node = DetokenizeNode(DetokenizeConfig(tokenizer=file))
    assert node._decoded(rows_of(made["ids"])) == [" ".join(row) for row in rows]
