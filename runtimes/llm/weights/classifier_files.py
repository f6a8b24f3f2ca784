"""What a classifier's files declare: its labels, the layers of its head, and what its logits become.

The heads are those of transformers' classes `…ForSequenceClassification`. What logits become is read as
sentence-transformers' CrossEncoder reads it, and as transformers' pipeline of text classification.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from runtimes.llm.model.classifier_config import ClassifierConfig, Function, HeadLayout
from runtimes.llm.model.embedding_config import module_types
from runtimes.llm.model.encoders.families import ENCODERS
from runtimes.llm.model.model_config import UnsupportedModel
from runtimes.llm.sequence import Pooling
from runtimes.llm.weights.generation_config import json_file
from runtimes.llm.weights.task_adapters import TaskName

_CLASSIFIES = "ForSequenceClassification"
_QWEN_MARK = "is_original_qwen3_reranker"
_NO_LIMIT = 1 << 30
"""Tokenizers without a limit declare a huge one."""
_POOLER = HeadLayout(dense="pooler.dense", out="classifier")
_ROBERTA = HeadLayout(dense="classifier.dense", out="classifier.out_proj")
_LAYOUTS: Mapping[str, HeadLayout] = {
    **dict.fromkeys(("bert", "new", "gte", "nomic_bert"), _POOLER),
    **dict.fromkeys(("roberta", "xlm-roberta", "camembert", "mpnet"), _ROBERTA),
    "electra": replace(_ROBERTA, activation="gelu"),
    "albert": HeadLayout(dense="pooler", out="classifier"),
    "distilbert": HeadLayout(dense="pre_classifier", activation="relu", out="classifier"),
}
_CONFIGURED = ("deberta-v2", "modernbert")
"""Encoders whose head depends on config.json."""
_DECODER = HeadLayout(out="score", biased=False)


def classifier_config(path: Path, task: TaskName = "auto") -> ClassifierConfig | None:
    """None for a model that does not classify. Raises UnsupportedModel for one that cannot be computed as declared, or
    cannot do the `task`."""
    raw = json_file(path / "config.json") if path.is_dir() else {}
    named = [str(name) for name in raw.get("architectures") or []]
    if any(name.endswith(_CLASSIFIES) for name in named):
        return _declared(path, raw)
    if task == "rerank" or raw.get(_QWEN_MARK) is True:
        return _yes_no(path, raw)
    return None


def _declared(path: Path, raw: Mapping[str, Any]) -> ClassifierConfig:
    if (path / "modules.json").is_file() and (unknown := module_types(path / "modules.json") - {"Transformer"}):
        raise UnsupportedModel(f"modules.json of a classifier lists {min(unknown)}; Transformer alone is supported")
    labels = _labels(raw)
    single = len(labels) == 1
    encodes = raw.get("model_type") in ENCODERS
    problem = raw.get("problem_type")
    if problem == "regression":
        classify: Function = "identity"
    else:
        classify = "sigmoid" if single or problem == "multi_label_classification" else "softmax"
    return ClassifierConfig(
        labels=labels,
        pooling=_pooling(raw, encodes=encodes),
        layout=_layout(raw) if encodes else _DECODER,
        score=_activation(path, raw, single=single),
        classify=classify,
        max_length=_max_length(path),
    )


def _labels(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """The names in the order of the logits. transformers writes none for its default, which are two."""
    names = raw.get("id2label")
    count = raw.get("num_labels", 2)
    if names is None:
        if isinstance(count, bool) or not isinstance(count, int) or not 0 < count <= 1 << 16:
            raise UnsupportedModel(f"num_labels {count!r} is not a number of labels")
        return tuple(f"LABEL_{place}" for place in range(count))
    if not isinstance(names, dict) or {str(place) for place in range(len(names))} != names.keys() or not names:
        raise UnsupportedModel("id2label does not name the labels from 0 on")
    return tuple(str(names[str(place)]) for place in range(len(names)))


def _pooling(raw: Mapping[str, Any], *, encodes: bool) -> Pooling:
    if not encodes:
        return "last"
    pooling = raw.get("classifier_pooling", "cls") if raw.get("model_type") == "modernbert" else "cls"
    if pooling not in ("cls", "mean"):
        raise UnsupportedModel(f"classifier_pooling {pooling!r} is not supported; cls and mean are")
    return "mean" if pooling == "mean" else "cls"


def _layout(raw: Mapping[str, Any]) -> HeadLayout:
    if raw["model_type"] == "deberta-v2":
        return replace(_POOLER, activation=raw.get("pooler_hidden_act", "gelu"))
    if raw["model_type"] != "modernbert":
        return _layout_of(raw["model_type"])
    return HeadLayout(
        dense="head.dense",
        activation=raw.get("classifier_activation", "gelu"),
        norm="head.norm",
        out="classifier",
        dense_biased=bool(raw.get("classifier_bias")),
        norm_biased=bool(raw.get("norm_bias")),
        norm_eps=raw.get("norm_eps", 1e-5),
    )


def _layout_of(kind: str) -> HeadLayout:
    if kind not in _LAYOUTS:
        raise UnsupportedModel(
            f"a classifier of type {kind!r} is not supported; these are: {', '.join(sorted((*_LAYOUTS, *_CONFIGURED)))}"
        )
    return _LAYOUTS[kind]


def _activation(path: Path, raw: Mapping[str, Any], *, single: bool) -> Function:
    """What CrossEncoder applies to logits. It imports only functions of torch, and else has its default."""
    own = raw.get("sentence_transformers")
    places = (
        json_file(path / "config_sentence_transformers.json").get("activation_fn"),
        own.get("activation_fn") if isinstance(own, dict) else None,
        raw.get("sbert_ce_default_activation_function"),
    )
    named = next((name for name in places if isinstance(name, str) and name.startswith("torch.")), None)
    if named is None:
        return "sigmoid" if single else "identity"
    functions: dict[str, Function] = {"Identity": "identity", "Sigmoid": "sigmoid"}
    if (function := functions.get(named.rpartition(".")[2])) is None:
        raise UnsupportedModel(f"activation_fn {named} is not supported; Identity and Sigmoid are")
    return function


def _max_length(path: Path) -> int | None:
    """The shorter one of what sentence-transformers and the tokenizer declare."""
    given = (
        json_file(path / "sentence_bert_config.json").get("max_seq_length"),
        json_file(path / "tokenizer_config.json").get("model_max_length"),
    )
    lengths = [int(one) for one in given if isinstance(one, int | float) and 0 < one < _NO_LIMIT]
    return min(lengths, default=None)


def _yes_no(path: Path, raw: Mapping[str, Any]) -> ClassifierConfig:
    """Qwen 3 Reranker, which is a plain causal model: https://huggingface.co/Qwen/Qwen3-Reranker-0.6B."""
    if raw.get("model_type") != "qwen3":
        raise UnsupportedModel(
            f"task: rerank is for Qwen 3 Reranker and for classifiers (…{_CLASSIFIES}); this is a model of type"
            f" {raw.get('model_type')!r}. Another reranker can be started with `kind: vllm`"
        )
    return ClassifierConfig(
        labels=("yes",),
        pooling="last",
        layout=HeadLayout(out="lm_head", biased=False),
        score="sigmoid",
        classify="sigmoid",
        yes_no=True,
    )
