"""The shape of an encoder, and the computation of a model's vectors, from the files of the model.

Embedding models are published in the layout of sentence-transformers (https://sbert.net): modules.json lists the
modules in their order. Without that file, vectors have length 1, as OpenAI's do.
"""

import json
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from runtimes.llm.model.encoder_families import ENCODERS
from runtimes.llm.model.model_config import Rope, UnsupportedModel
from runtimes.llm.sequence import Pooling

_ACTIVATIONS = {
    "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu", "silu": "silu",
}  # fmt: skip
# Encoders by the way that they are trained, which this engine computes nothing of.
_OTHERS = frozenset({"albert", "deberta", "deberta-v2", "electra", "xlm-roberta-flash"})


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """The shape of an encoder. The defaults are BERT's.

    The first token of a text is at `first_position` of `num_positions`, which have vectors if there are no `ropes`. Of
    a layer's kind, `ropes` turn its queries and keys, and it attends to `windows` tokens on each side. Without
    `pre_norms` norms are after attention and MLP, and their inputs. Scores have a bias by distance if there are
    `buckets` of distances. A `gated` MLP is activation(gate) × up.
    """

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
    ropes: tuple[Rope, ...] = ()
    windows: tuple[int | None, ...] = (None,)
    layer_kinds: tuple[int, ...] = ()
    buckets: int = 0
    pre_norms: bool = False
    gated: bool = False
    attention_bias: bool = True
    up_bias: bool = True
    down_bias: bool = True
    norm_bias: bool = True

    @property
    def num_kv_heads(self) -> int:
        return self.num_heads

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_heads

    def kind(self, layer: int) -> int:
        return self.layer_kinds[layer] if self.layer_kinds else 0

    @property
    def context_length(self) -> int:
        """Tokens of the longest text."""
        return self.num_positions - self.first_position


def is_encoder(path: Path) -> bool:
    """Whether the model at `path` only embeds texts. Raises UnsupportedModel for an encoder of no family that is
    supported."""
    kind = _kind(path)
    if kind in _OTHERS:
        raise UnsupportedModel(
            f"architecture {kind!r} is not supported; of encoders these are: {', '.join(sorted(ENCODERS))}. A"
            " server that supports it can be started with `kind: vllm`"
        )
    return kind in ENCODERS


def encoder_config(raw: dict[str, Any]) -> EncoderConfig:
    """Raises UnsupportedModel that names the missing feature."""
    family = ENCODERS[raw["model_type"]]
    raw = copy(raw)  # whose error for a missing field names the file
    raw.update({own: raw[stored] for own, stored in family.keys.items() if stored in raw})
    features = family.features(raw)
    if not features.get("ropes") and raw.get("position_embedding_type", "absolute") != "absolute":
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
    described: dict[str, Any] = {
        "vocab_size": raw["vocab_size"],
        "hidden_size": raw["hidden_size"],
        "intermediate_size": raw["intermediate_size"],
        "num_layers": raw["num_hidden_layers"],
        "num_heads": raw["num_attention_heads"],
        "num_positions": raw["max_position_embeddings"],
        "first_position": 0,
        "num_types": raw.get("type_vocab_size", 2),
        "layer_norm_eps": raw.get("layer_norm_eps", 1e-12),
        "activation": activation,
    }
    return EncoderConfig(**described | features)


def _kind(path: Path) -> str | None:
    file = path / "config.json"
    if not file.is_file():
        return None
    try:
        raw = json.loads(file.read_bytes())
    except ValueError:
        return None  # the loader of the model reports the defect
    return raw.get("model_type") if isinstance(raw, dict) else None


PoolingName = Literal["auto", "mean", "last", "cls"]
_POOLINGS: dict[str, Pooling] = {
    "pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean", "pooling_mode_lasttoken": "last",
    "cls": "cls", "mean": "mean", "lasttoken": "last",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingConfig:
    """`prompt` precedes every text. `dimensions` are the sizes to which a vector may be cut: any, some, or none."""

    pooling: Pooling = "last"
    normalize: bool = True
    prompt: str = ""
    lowercase: bool = False
    max_length: int | None = None
    """Tokens of the longest text that the model was made for."""
    dimensions: frozenset[int] | Literal["any"] = frozenset()

    def may_cut_to(self, dimensions: int) -> bool:
        return self.dimensions == "any" or dimensions in self.dimensions


def embedding_config(
    path: Path, *, encoder: bool, pooling: PoolingName = "auto", matryoshka: bool = False
) -> EmbeddingConfig:
    """Read the configuration of the model at `path`. `pooling` and `matryoshka` override it.

    Raises UnsupportedModel for unsupported modules.
    """
    own: Pooling = "mean" if encoder else "last"
    normalize, prompt, settings = True, "", {}
    if (path / "modules.json").is_file():
        modules = {_type(module): path / Path(module["path"]).name for module in _list(path / "modules.json")}
        if unknown := modules.keys() - {"Transformer", "Pooling", "Normalize"}:
            raise UnsupportedModel(
                f"modules.json lists {min(unknown)}; supported are Transformer, Pooling and Normalize"
            )
        normalize, prompt = "Normalize" in modules, _prompt(path)
        if "Pooling" in modules:
            own = _pooling(_object(modules["Pooling"] / "config.json"), prompt)
        settings = _object(path / "sentence_bert_config.json")
    return EmbeddingConfig(
        pooling=own if pooling == "auto" else pooling,
        normalize=normalize,
        prompt=prompt,
        lowercase=bool(settings.get("do_lower_case")),
        max_length=settings.get("max_seq_length"),
        dimensions="any" if matryoshka else _dimensions(path),
    )


def module_types(file: Path) -> set[str]:
    """The classes that a modules.json lists. Raises UnsupportedModel."""
    return {_type(module) for module in _list(file)}


def _type(module: dict[str, Any]) -> str:
    """The class of a module, without its package, which differs between releases."""
    return str(module["type"]).rpartition(".")[2]


def _pooling(settings: dict[str, Any], prompt: str) -> Pooling:
    modes = [name for name, value in settings.items() if name.startswith("pooling_mode_") and value is True]
    if isinstance(named := settings.get("pooling_mode"), str):
        modes = [named]
    if len(modes) != 1 or modes[0] not in _POOLINGS:
        raise UnsupportedModel(f"pooling by {' and '.join(modes) or 'nothing'} is not supported; cls, mean or last is")
    if prompt and settings.get("include_prompt") is False:
        raise UnsupportedModel("a prompt that is left out when pooling (include_prompt) is not supported")
    return _POOLINGS[modes[0]]


def _prompt(path: Path) -> str:
    """The default prefix of texts."""
    settings = _object(path / "config_sentence_transformers.json")
    name = settings.get("default_prompt_name")
    return "" if name is None else str(settings["prompts"][name])


def _dimensions(path: Path) -> frozenset[int] | Literal["any"]:
    """The dimensions to which vectors may be truncated, as declared in the model's file in vLLM's format."""
    settings = _object(path / "config.json")
    if sizes := settings.get("matryoshka_dimensions"):
        return frozenset(sizes)
    return "any" if settings.get("is_matryoshka") else frozenset()


def _object(file: Path) -> dict[str, Any]:
    settings = _json(file) if file.is_file() else {}
    if not isinstance(settings, dict):
        raise UnsupportedModel(f"{file.name} is not a JSON object")
    return settings


def _list(file: Path) -> list[dict[str, Any]]:
    settings = _json(file)
    if not isinstance(settings, list) or not all(
        isinstance(one, dict) and {"type", "path"} <= one.keys() for one in settings
    ):
        raise UnsupportedModel(f"{file.name} is not a list of modules")
    return settings


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_bytes())
    except ValueError as error:
        raise UnsupportedModel(f"{file.name} cannot be read: {error}") from None
