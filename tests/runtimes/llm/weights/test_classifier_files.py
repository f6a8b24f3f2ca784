"""What the files of a classifier declare."""

import json
from pathlib import Path
from typing import Any

import pytest

from runtimes.llm.model.classifier_config import ClassifierConfig
from runtimes.llm.model.model_config import UnsupportedModel
from runtimes.llm.weights.classifier_files import classifier_config
from tests.support.cases import cases

pytestmark = pytest.mark.plain

BERT = {"model_type": "bert", "architectures": ["BertForSequenceClassification"]}


def written(folder: Path, files: dict[str, Any]) -> Path:
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def config_of(folder: Path, raw: dict[str, Any], **files: Any) -> ClassifierConfig:
    config = classifier_config(written(folder, {"config": BERT | raw, **files}))
    assert config is not None
    return config


def test_a_model_without_a_head_is_no_classifier(tmp_path: Path) -> None:
    for architectures in (["BertModel"], ["BertForMaskedLM"], [], None):
        written(tmp_path, {"config": {"model_type": "bert", "architectures": architectures}})
        assert classifier_config(tmp_path) is None
    assert classifier_config(tmp_path / "no-such.gguf") is None


def test_labels_are_in_the_order_of_the_logits(tmp_path: Path) -> None:
    names = {str(at): f"name {at}" for at in range(12)}
    assert config_of(tmp_path, {"id2label": names}).labels == tuple(names.values())
    assert config_of(tmp_path, {}).labels == ("LABEL_0", "LABEL_1")  # transformers writes no default
    assert config_of(tmp_path, {"num_labels": 3}).labels == ("LABEL_0", "LABEL_1", "LABEL_2")


@pytest.mark.parametrize(("raw", "files", "score", "classify"), cases(__file__, "functions"))
def test_functions_of_the_logits(
    tmp_path: Path, raw: dict[str, Any], files: dict[str, Any], score: str, classify: str
) -> None:
    config = config_of(tmp_path, raw, **files)
    assert (config.score, config.classify) == (score, classify)


@pytest.mark.parametrize(("files", "length"), cases(__file__, "lengths"))
def test_the_shorter_declared_length_counts(tmp_path: Path, files: dict[str, Any], length: int | None) -> None:
    assert config_of(tmp_path, {}, **files).max_length == length


@pytest.mark.parametrize(("raw", "files", "message"), cases(__file__, "refused"))
def test_a_head_that_cannot_be_computed_is_refused(
    tmp_path: Path, raw: dict[str, Any], files: dict[str, Any], message: str
) -> None:
    with pytest.raises(UnsupportedModel, match=message):
        config_of(tmp_path, raw, **files)


def test_a_reranker_that_answers_is_marked_or_named(tmp_path: Path) -> None:
    chat = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}
    written(tmp_path, {"config": chat})
    assert classifier_config(tmp_path) is None
    named = classifier_config(tmp_path, "rerank")
    assert named is not None
    assert (named.yes_no, named.pooling, named.score) == (True, "last", "sigmoid")
    written(tmp_path, {"config": chat | {"is_original_qwen3_reranker": True}})
    assert classifier_config(tmp_path) == named
    written(tmp_path, {"config": BERT})
    classifies = classifier_config(tmp_path, "rerank")
    assert classifies is not None
    assert not classifies.yes_no
