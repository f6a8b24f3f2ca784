"""A classifier's head from its folder, and how it encodes its pairs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from runtimes.llm.model.classifier import ClassifierHead
from runtimes.llm.model.classifier_config import ClassifierConfig
from runtimes.llm.model.matrix import unquantized
from runtimes.llm.model.model_config import UnsupportedModel
from runtimes.llm.text.pairs import PairEncoder, YesNoPrompt
from runtimes.llm.text.tokenizer import Tokenizer
from runtimes.llm.weights.encoder_files import PREFIXES
from runtimes.llm.weights.generation_config import json_file
from runtimes.llm.weights.loader import check_weight, hidden_size, open_checkpoint
from runtimes.llm.weights.tensor_files import TensorFiles

_WORDS = ("yes", "no")


@dataclass(frozen=True, slots=True)
class Classifier:
    """A model that scores pairs, or labels texts."""

    config: ClassifierConfig
    head: ClassifierHead
    pairs: PairEncoder
    prompt: YesNoPrompt | None = None
    """In place of plain pairs, for a model that answers yes or no."""


def load_classifier(folder: Path, config: ClassifierConfig, tokenizer: Tokenizer) -> Classifier:
    """Raises UnsupportedModel for a head that its configuration does not describe."""
    pairs = PairEncoder(tokenizer, typed=_typed(folder))
    if config.yes_no:
        return Classifier(config, _yes_no_head(folder, config, tokenizer), pairs, YesNoPrompt(tokenizer))
    files = TensorFiles(folder)

    def tensor(name: str, shape: tuple[int, ...]) -> Tensor:
        stored = next((prefix + name for prefix in PREFIXES if prefix + name in files), name)
        weight = files.tensor(stored)
        check_weight(stored, weight, shape)
        return weight.float()

    return Classifier(config, ClassifierHead(config, hidden_size(folder), tensor), pairs)


def _typed(folder: Path) -> bool:
    """Whether the tokenizer gives a model the types of tokens."""
    names = json_file(folder / "tokenizer_config.json").get("model_input_names")
    return not isinstance(names, list) or "token_type_ids" in names


def _yes_no_head(folder: Path, config: ClassifierConfig, tokenizer: Tokenizer) -> ClassifierHead:
    """The row of yes without that of no: the sigmoid of its logit is the softmax over both of the share of yes."""
    yes, no = (tokenizer.token_id(word) for word in _WORDS)
    if yes is None or no is None:
        raise UnsupportedModel("the tokenizer has no tokens `yes` and `no`, so the model is no Qwen 3 Reranker")
    _check_declared(folder, yes, no)
    checkpoint = open_checkpoint(folder)
    tied = checkpoint.config.tie_word_embeddings
    matrix = unquantized(checkpoint.weight("model.embed_tokens.weight" if tied else "lm_head.weight"))
    if max(yes, no) >= len(matrix):
        raise UnsupportedModel(f"the model has {len(matrix)} rows; `yes` and `no` are tokens {yes} and {no}")
    row: Tensor = (matrix[yes].to(torch.float32) - matrix[no].to(torch.float32))[None]

    def tensor(name: str, shape: tuple[int, ...]) -> Tensor:
        check_weight(name, row, shape)
        return row

    return ClassifierHead(config, checkpoint.config.hidden_size, tensor)


def _check_declared(folder: Path, yes: int, no: int) -> None:
    """Compare with the ids that sentence-transformers' module declares, if it is there."""
    for file in sorted(folder.glob("*_LogitScore/config.json")):
        declared: Mapping[str, Any] = json_file(file)
        if (declared.get("true_token_id"), declared.get("false_token_id")) != (yes, no):
            raise UnsupportedModel(
                f"{file.parent.name} scores by other tokens than `yes` and `no`: only Qwen 3 Reranker's prompt is"
                " supported. Another reranker can be started with `kind: vllm`"
            )
