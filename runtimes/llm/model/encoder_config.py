"""The shape of an encoder of the BERT family, from its config.json."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtimes.llm.model.model_config import UnsupportedModel

_BERT, _ROBERTA = frozenset({"bert"}), frozenset({"roberta", "xlm-roberta", "camembert"})
_ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu"}
# Encoders by the way that they are trained, which this engine computes nothing of.
_OTHERS = frozenset(
    {"albert", "deberta", "deberta-v2", "distilbert", "electra", "modernbert", "mpnet", "new", "nomic_bert"}
)


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """The first token of a text is at `first_position` of `num_positions`."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_positions: int
    first_position: int
    num_types: int
    layer_norm_eps: float
    activation: str

    @property
    def context_length(self) -> int:
        """Tokens of the longest text."""
        return self.num_positions - self.first_position


def is_encoder(path: Path) -> bool:
    """Whether the model at `path` only embeds texts. Raises UnsupportedModel for an encoder outside of BERT's
    family."""
    kind = _kind(path)
    if kind in _OTHERS:
        raise UnsupportedModel(
            f"architecture {kind!r} is not supported; of encoders these are: {', '.join(sorted(_BERT | _ROBERTA))}"
        )
    return kind in _BERT | _ROBERTA


def encoder_config(raw: Mapping[str, Any]) -> EncoderConfig:
    """Raises UnsupportedModel that names the missing feature."""
    if raw.get("position_embedding_type", "absolute") != "absolute":
        raise UnsupportedModel(f"position_embedding_type {raw['position_embedding_type']!r} is not supported")
    if raw.get("is_decoder"):
        raise UnsupportedModel("is_decoder is not supported: a model of BERT's family only encodes here")
    activation = _ACTIVATIONS.get(raw.get("hidden_act", "gelu"))
    if activation is None:
        raise UnsupportedModel(
            f"hidden_act {raw['hidden_act']!r} is not supported; these are: {', '.join(_ACTIVATIONS)}"
        )
    if raw["hidden_size"] % raw["num_attention_heads"]:
        raise UnsupportedModel("hidden_size is no multiple of num_attention_heads")
    return EncoderConfig(
        vocab_size=raw["vocab_size"],
        hidden_size=raw["hidden_size"],
        intermediate_size=raw["intermediate_size"],
        num_layers=raw["num_hidden_layers"],
        num_heads=raw["num_attention_heads"],
        num_positions=raw["max_position_embeddings"],
        # RoBERTa's positions begin after the padding token's.
        first_position=raw.get("pad_token_id", 1) + 1 if raw["model_type"] in _ROBERTA else 0,
        num_types=raw.get("type_vocab_size", 2),
        layer_norm_eps=raw.get("layer_norm_eps", 1e-12),
        activation=activation,
    )


def _kind(path: Path) -> str | None:
    file = path / "config.json"
    if not file.is_file():
        return None
    try:
        raw = json.loads(file.read_bytes())
    except ValueError:
        return None  # the loader of the model reports the defect
    return raw.get("model_type") if isinstance(raw, dict) else None
