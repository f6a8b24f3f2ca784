"""The computation of a model's vectors, from the files of the model.

Embedding models are published in the layout of sentence-transformers (https://sbert.net): modules.json lists the
modules in their order. Without that file, vectors have length 1, as OpenAI's do.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeGuard

from runtimes.llm.model.model_config import UnsupportedModel
from runtimes.llm.sequence import Pooling

PoolingName = Literal["auto", "mean", "last", "cls"]
_POOLINGS: dict[str, Pooling] = {
    "pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean", "pooling_mode_lasttoken": "last",
    "cls": "cls", "mean": "mean", "lasttoken": "last",
}  # fmt: skip


_OURS = ("Transformer", "Pooling", "Dense", "Normalize")
"""The modules that are computed, in their only order; there may be several dense layers."""
_PACKAGE = "sentence_transformers."
_WITH_TASKS = "custom_st.Transformer"
"""Jina v3's own class, which selects an adapter."""
_DENSE_FIELDS = {
    "in_features", "out_features", "bias", "activation_function", "module_input_name", "module_output_name",
}  # fmt: skip
_POOLING_FIELDS = {"word_embedding_dimension", "embedding_dimension", "pooling_mode", "include_prompt"}
_MOST_FEATURES = 1 << 20
_DENSE_ACTIVATIONS = ("Identity", "Tanh", "ReLU", "GELU", "SiLU", "Sigmoid")
_ADVICE = "A server that supports it can be started with `kind: vllm`"


@dataclass(frozen=True, slots=True)
class DenseLayout:
    """A layer after pooling: activation(weight [outputs, inputs] × vector + bias). `name` is where its files are."""

    name: str
    inputs: int
    outputs: int
    biased: bool = False
    activation: str = "Identity"


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
    dense: tuple[DenseLayout, ...] = ()
    """Layers between pooling and normalization."""

    def may_cut_to(self, dimensions: int) -> bool:
        return self.dimensions == "any" or dimensions in self.dimensions


def embedding_config(
    path: Path, *, encoder: bool, pooling: PoolingName = "auto", matryoshka: bool = False
) -> EmbeddingConfig:
    """Read the configuration of the model at `path`. `pooling` and `matryoshka` override it.

    Raises UnsupportedModel for unsupported modules.
    """
    own: Pooling = "mean" if encoder else "last"
    normalize, prompt, settings, dense = True, "", dict[str, Any](), tuple[DenseLayout, ...]()
    if (path / "modules.json").is_file():
        modules = _modules(path / "modules.json", tasks="lora_adaptations" in _object(path / "config.json"))
        kinds = [kind for kind, _ in modules]
        normalize, prompt = "Normalize" in kinds, _prompt(path)
        folders = [path / folder for kind, folder in modules if kind == "Pooling"]
        if folders:
            own = _pooling(_object(folders[0] / "config.json"), prompt)
        dense = tuple(_dense(path / folder) for kind, folder in modules if kind == "Dense")
        settings = _object(path / "sentence_bert_config.json")
    return EmbeddingConfig(
        pooling=own if pooling == "auto" else pooling,
        normalize=normalize,
        prompt=prompt,
        lowercase=bool(settings.get("do_lower_case")),
        max_length=_max_length(settings),
        dimensions="any" if matryoshka else _dimensions(path),
        dense=dense,
    )


def module_types(file: Path) -> set[str]:
    """The classes that a modules.json lists. Raises UnsupportedModel."""
    return {_type(module) for module in _list(file)}


def _modules(file: Path, *, tasks: bool) -> list[tuple[str, str]]:
    """Each module's class and folder. The transformer of a model with `tasks` is its authors'. Raises UnsupportedModel
    for other modules, or another order."""
    modules = [(_type(module), Path(str(module["path"])).name) for module in _list(file)]
    if tasks:
        modules = [("Transformer" if kind == _WITH_TASKS else kind, folder) for kind, folder in modules]
    kinds = [kind for kind, _ in modules]
    if unknown := sorted({*kinds} - {*_OURS}):
        raise UnsupportedModel(f"modules.json lists {unknown[0]}; supported are {', '.join(_OURS)}. {_ADVICE}")
    if kinds != sorted(kinds, key=_OURS.index) or any(kinds.count(kind) > 1 for kind in _OURS if kind != "Dense"):
        raise UnsupportedModel(f"modules.json lists {', '.join(kinds)}; the supported order is {', '.join(_OURS)}")
    if "Dense" in kinds and "Pooling" not in kinds:
        raise UnsupportedModel("modules.json lists Dense without Pooling: vectors of single tokens are not supported")
    return modules


def _type(module: dict[str, Any]) -> str:
    """The class of a module; of sentence-transformers', without the modules around it, which differ between
    releases."""
    name = str(module["type"])
    return name.rpartition(".")[2] if name.startswith(_PACKAGE) else name


def _dense(folder: Path) -> DenseLayout:
    settings = _object(folder / "config.json")
    inputs, outputs = settings.get("in_features"), settings.get("out_features")
    if not (_is_size(inputs) and _is_size(outputs)):
        raise UnsupportedModel(f"{folder.name}/config.json has no in_features and out_features")
    activation = str(settings.get("activation_function", "torch.nn.modules.activation.Tanh"))
    package, _, name = activation.rpartition(".")
    if not f"{package}.".startswith("torch.nn.") or name not in _DENSE_ACTIVATIONS:
        ours = ", ".join(_DENSE_ACTIVATIONS)
        raise UnsupportedModel(f"{folder.name} has activation_function {activation}; torch's {ours} are supported")
    for side in ("input", "output"):
        if (key := settings.get(f"module_{side}_name") or "sentence_embedding") != "sentence_embedding":
            raise UnsupportedModel(f"{folder.name} has module_{side}_name {key!r}; sentence_embedding is supported")
    if unknown := sorted(settings.keys() - _DENSE_FIELDS):
        raise UnsupportedModel(f"{folder.name}/config.json has {unknown[0]}, which is not supported")
    return DenseLayout(folder.name, inputs, outputs, biased=bool(settings.get("bias", True)), activation=name)


def _is_size(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST_FEATURES


def _pooling(settings: dict[str, Any], prompt: str) -> Pooling:
    modes = [name for name, value in settings.items() if name.startswith("pooling_mode_") and value is True]
    if isinstance(named := settings.get("pooling_mode"), str):
        modes = [named]
    if len(modes) != 1 or modes[0] not in _POOLINGS:
        raise UnsupportedModel(f"pooling by {' and '.join(modes) or 'nothing'} is not supported; cls, mean or last is")
    if unknown := sorted(name for name in settings.keys() - _POOLING_FIELDS if not name.startswith("pooling_mode_")):
        raise UnsupportedModel(f"the configuration of Pooling has {unknown[0]}, which is not supported")
    if prompt and settings.get("include_prompt") is False:
        raise UnsupportedModel("a prompt that is left out when pooling (include_prompt) is not supported")
    return _POOLINGS[modes[0]]


def _prompt(path: Path) -> str:
    """The default prefix of texts."""
    settings = _object(path / "config_sentence_transformers.json")
    name = settings.get("default_prompt_name")
    if name is None:
        return ""
    prompts = settings.get("prompts")
    if not isinstance(prompts, dict) or not isinstance(prompts.get(str(name)), str):
        raise UnsupportedModel(f"config_sentence_transformers.json has no prompt {name!r}")
    return str(prompts[str(name)])


def _max_length(settings: dict[str, Any]) -> int | None:
    length = settings.get("max_seq_length")
    if length is not None and (not isinstance(length, int) or isinstance(length, bool) or length < 1):
        raise UnsupportedModel(
            f"max_seq_length of sentence_bert_config.json is {length!r}, which is no number of tokens"
        )
    return length


def _dimensions(path: Path) -> frozenset[int] | Literal["any"]:
    """The dimensions to which vectors may be truncated, as declared in the model's file in vLLM's format."""
    settings = _object(path / "config.json")
    if sizes := settings.get("matryoshka_dimensions"):
        if not isinstance(sizes, list) or not all(map(_is_size, sizes)):
            raise UnsupportedModel(f"matryoshka_dimensions of config.json is {sizes!r}, which is no list of sizes")
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
