"""The settings of embeddings in the files beside a model."""

import json
from pathlib import Path
from typing import Any

import pytest

from runtimes.llm.model.embedding_config import DenseLayout, EmbeddingConfig, embedding_config
from runtimes.llm.model.model_config import UnsupportedModel
from runtimes.llm.sequence import Pooling
from tests.support.cases import cases

pytestmark = pytest.mark.plain


def module(kind: str, path: str = "") -> dict[str, Any]:
    return {"idx": 0, "name": "0", "path": path, "type": f"sentence_transformers.models.{kind}"}


MEAN = {"word_embedding_dimension": 8, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}


def write(folder: Path, modules: Any = None, pooling: Any = None, **files: Any) -> Path:
    (folder / "1_Pooling").mkdir()
    contents = {"modules": modules, "1_Pooling/config": pooling, **files}
    for name, value in contents.items():
        if value is not None:
            (folder / f"{name}.json").write_text(json.dumps(value))
    return folder


def test_of_the_real_one(minilm: Path) -> None:
    assert embedding_config(minilm, encoder=True) == EmbeddingConfig(pooling="mean", max_length=256)


def test_a_model_without_files_has_defaults(tmp_path: Path) -> None:
    assert embedding_config(tmp_path, encoder=False) == EmbeddingConfig(pooling="last", normalize=True)
    assert embedding_config(tmp_path, encoder=True).pooling == "mean"
    assert embedding_config(tmp_path / "no-such.gguf", encoder=False).pooling == "last"
    assert embedding_config(tmp_path, encoder=True, pooling="cls").pooling == "cls"


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        (MEAN, "mean"),
        ({"pooling_mode_lasttoken": True, "pooling_mode_mean_tokens": False}, "last"),
        ({"pooling_mode_cls_token": True}, "cls"),
        ({"pooling_mode": "cls"}, "cls"),
    ],
)
def test_modules_are_obeyed(tmp_path: Path, pooling: dict[str, Any], expected: Pooling) -> None:
    modules = [module("Transformer"), module("Pooling", "1_Pooling")]
    bert = {"max_seq_length": 77, "do_lower_case": True}
    prompts = {"default_prompt_name": "query", "prompts": {"query": "query: "}}
    write(tmp_path, modules, pooling, sentence_bert_config=bert, config_sentence_transformers=prompts)
    assert embedding_config(tmp_path, encoder=True) == EmbeddingConfig(
        pooling=expected, normalize=False, prompt="query: ", lowercase=True, max_length=77
    )


@pytest.mark.parametrize(
    ("modules", "pooling", "message"),
    [
        *cases(__file__, "unknown values"),
        ([module("Transformer"), module("Dense", "2_Dense")], None, "Dense without Pooling"),
        ([module("Pooling", "1_Pooling"), module("Transformer")], MEAN, "the supported order"),
        ([module("Transformer"), module("Normalize"), module("Dense", "2_Dense")], MEAN, "the supported order"),
        ([module("Pooling", "1_Pooling"), module("Pooling", "2_Pooling")], MEAN, "the supported order"),
        ([module("Pooling", "1_Pooling"), module("LayerNorm", "2_LayerNorm")], MEAN, "LayerNorm.*`kind: vllm`"),
        ([{"path": "", "type": "custom_st.Transformer"}], None, "custom_st"),
        ([module("Pooling", "1_Pooling")], MEAN | {"new_field": 1}, "new_field"),
        ([module("Pooling", "1_Pooling")], MEAN | {"pooling_mode_cls_token": True}, " and "),
    ],
)
def test_unknown_values_are_refused(tmp_path: Path, modules: Any, pooling: Any, message: str) -> None:
    with pytest.raises(UnsupportedModel, match=message):
        embedding_config(write(tmp_path, modules, pooling), encoder=True)


@pytest.mark.parametrize("length", ["77", 0, -5, 1.5, True, [77]])
def test_a_length_that_is_no_number_of_tokens_is_refused(tmp_path: Path, length: Any) -> None:
    write(tmp_path, [module("Transformer")], sentence_bert_config={"max_seq_length": length})
    with pytest.raises(UnsupportedModel, match="max_seq_length"):
        embedding_config(tmp_path, encoder=True)


@pytest.mark.parametrize("sizes", [5, "8", {"8": 1}, [8, -1], [[8]], ["8"], [True]])
def test_dimensions_that_are_no_sizes_are_refused(tmp_path: Path, sizes: Any) -> None:
    write(tmp_path, config={"matryoshka_dimensions": sizes})
    with pytest.raises(UnsupportedModel, match="matryoshka_dimensions"):
        embedding_config(tmp_path, encoder=True)


DENSE = {"in_features": 8, "out_features": 4, "activation_function": "torch.nn.modules.activation.Tanh"}


def test_dense_layers_are_in_their_order(tmp_path: Path) -> None:
    modules = [module("Transformer"), module("Pooling", "1_Pooling")]
    modules += [module("Dense", "2_Dense"), module("Dense", "3_Dense")]
    for name in ("2_Dense", "3_Dense"):
        (tmp_path / name).mkdir()
    second = {"in_features": 4, "out_features": 6, "bias": False, "activation_function": "torch.nn.Identity"}
    write(tmp_path, modules, MEAN, **{"2_Dense/config": DENSE, "3_Dense/config": second})
    config = embedding_config(tmp_path, encoder=True)
    assert config.dense == (DenseLayout("2_Dense", 8, 4, True, "Tanh"), DenseLayout("3_Dense", 4, 6))
    assert not config.normalize


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"in_features": None}, "no in_features and out_features"),
        ({"out_features": True}, "no in_features and out_features"),
        ({"activation_function": "torch.nn.modules.activation.Mish"}, "Mish; torch's Identity"),
        ({"activation_function": "mine.Tanh"}, r"mine\.Tanh"),
        ({"module_input_name": "token_embeddings"}, "module_input_name 'token_embeddings'"),
        ({"new_field": 1}, "new_field"),
    ],
)
def test_unknown_dense_layers_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    (tmp_path / "2_Dense").mkdir()
    modules = [module("Transformer"), module("Pooling", "1_Pooling"), module("Dense", "2_Dense")]
    write(tmp_path, modules, MEAN, **{"2_Dense/config": DENSE | change})
    with pytest.raises(UnsupportedModel, match=message):
        embedding_config(tmp_path, encoder=True)


def test_a_prompt_that_does_not_count_is_refused(tmp_path: Path) -> None:
    prompts = {"default_prompt_name": "q", "prompts": {"q": "query: "}}
    modules = [module("Pooling", "1_Pooling")]
    write(tmp_path, modules, MEAN | {"include_prompt": False}, config_sentence_transformers=prompts)
    with pytest.raises(UnsupportedModel, match="include_prompt"):
        embedding_config(tmp_path, encoder=True)


def test_the_lengths_to_which_vectors_may_be_cut(tmp_path: Path) -> None:
    none, some = EmbeddingConfig(), EmbeddingConfig(dimensions=frozenset({64, 128}))
    assert not none.may_cut_to(64)
    assert some.may_cut_to(64)
    assert not some.may_cut_to(65)
    config = tmp_path / "config.json"
    config.write_text('{"matryoshka_dimensions": [64, 128]}')
    assert embedding_config(tmp_path, encoder=True) == EmbeddingConfig(pooling="mean", dimensions=some.dimensions)
    config.write_text('{"is_matryoshka": true}')
    assert embedding_config(tmp_path, encoder=True).may_cut_to(7)
    config.write_text("{}")
    assert not embedding_config(tmp_path, encoder=True).may_cut_to(7)
    assert embedding_config(tmp_path, encoder=True, matryoshka=True).may_cut_to(7)


def test_invalid_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text("[")
    with pytest.raises(UnsupportedModel, match=r"modules\.json cannot be read"):
        embedding_config(tmp_path, encoder=True)
