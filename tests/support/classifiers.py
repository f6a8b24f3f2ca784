"""Small random classifiers of transformers' own classes, with the tokenizer of the bundled encoder."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from runtimes.llm.weights.store import resolve

SHAPE: dict[str, Any] = {
    "vocab_size": 30522, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 64, "initializer_range": 0.4, "pad_token_id": 0,
}  # fmt: skip
_ENDS = {"cls_token_id": 101, "sep_token_id": 102, "bos_token_id": 101, "eos_token_id": 102}
FAMILIES: dict[str, dict[str, Any]] = {
    "bert": {},
    "roberta": {"pad_token_id": 1, "type_vocab_size": 1},
    "xlm-roberta": {"pad_token_id": 1, "type_vocab_size": 1},
    "camembert": {"pad_token_id": 1, "type_vocab_size": 1},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48},
    "mpnet": {"pad_token_id": 1},
    "nomic_bert": {},
    "electra": {"embedding_size": 16},
    "deberta-v2": {
        "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8, "share_att_key": True,
        "norm_rel_ebd": "layer_norm", "position_biased_input": False,
    },
    "albert": {"embedding_size": 16, "num_hidden_groups": 2, "num_hidden_layers": 5},
    "gte": {"type_vocab_size": 2},
    "modernbert": {"local_attention": 8, **_ENDS},
    "modernbert, mean": {
        "classifier_pooling": "mean", "classifier_bias": True, "norm_bias": True, "classifier_activation": "silu",
        **_ENDS,
    },
    "llama": {"num_key_value_heads": 2},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 8},
    "gpt2": {"n_positions": 64, "bos_token_id": 101, "eos_token_id": 102},
}  # fmt: skip
"""What each family's configuration has beside the shape."""
_TYPED = ("bert", "nomic_bert", "gte", "electra", "albert")
"""The families whose tokenizers give a model the types of tokens."""


def classifier(folder: Path, family: str = "bert", labels: Sequence[str] = ("LABEL_0",), **changes: Any) -> Path:
    """A folder with a model, its tokenizer, and the names of its labels."""
    torch.manual_seed(0)
    names = dict(enumerate(labels))
    shape = SHAPE | FAMILIES[family] | {"id2label": names, "label2id": {name: at for at, name in names.items()}}
    config = AutoConfig.for_model(family.partition(",")[0], **(shape | changes))
    model = AutoModelForSequenceClassification.from_config(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "bias" in name:
                weight.normal_(0, 0.4)
    model.save_pretrained(folder)
    encoder = resolve("bundled:all-minilm-l6-v2", progress=False)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(encoder / name, folder)
    if family not in _TYPED:
        changed(folder, "tokenizer_config.json", model_input_names=["input_ids", "attention_mask"])
    return folder


def changed(folder: Path, name: str, **fields: Any) -> None:
    """Set fields of a JSON file of the folder."""
    file = folder / name
    content = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(content | fields))


@torch.inference_mode()  # type: ignore[untyped-decorator]
def logits_of(folder: Path, pairs: Sequence[tuple[str, str | None]], longest: int | None = None) -> list[list[float]]:
    """transformers' logits of each pair or text alone, cut to the `longest` as CrossEncoder cuts."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    cut = {"truncation": "longest_first", "max_length": longest} if longest is not None else {}
    logits = []
    for first, second in pairs:
        given = [first] if second is None else [(first, second)]  # of a list, an empty second text is one too
        encoded = tokenizer(given, return_tensors="pt", **cut)
        logits.append(model(**encoded).logits[0].tolist())
    return logits
