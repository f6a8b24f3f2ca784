"""The computation of a model's vectors, from the files of the model.

Embedding models are published in the layout of sentence-transformers (https://sbert.net): modules.json lists the
modules in their order. Without that file, vectors have length 1, as OpenAI's do.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from runtimes.llm.engine.sequence import Pooling
from runtimes.llm.model.model_config import UnsupportedModel

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
