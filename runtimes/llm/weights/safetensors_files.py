"""A Hugging Face folder as a model: its shape, from config.json, and its tensors by name."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from runtimes.llm.model.hugging_face import family_of, hugging_face_config, text_part, token_ids
from runtimes.llm.model.matrix import Weight, unquantized
from runtimes.llm.model.model_config import UnsupportedModel
from runtimes.llm.model.tensor_names import TensorPart, neighbours_apart, numbered, stored_as
from runtimes.llm.weights.adapter_files import AdapterBase
from runtimes.llm.weights.quantized_files import QuantizedFiles, quantization_settings
from runtimes.llm.weights.tensor_files import TensorFiles, json_object

_HEADLESS = ("Model", "ForSequenceClassification")
"""How transformers' classes without the matrix of logits end."""


class SafetensorsCheckpoint:
    """A Hugging Face folder: config.json, and the tensors in its files. `files` replaces these."""

    def __init__(self, folder: Path, files: TensorFiles | None = None) -> None:
        raw = json_object(folder / "config.json")
        _refuse_classifier(folder, raw)
        config = hugging_face_config(raw, _eos_of_generation(folder))
        self._family = family_of(text_part(raw))
        self._files = QuantizedFiles(files or TensorFiles(folder), quantization_settings(raw))
        self.config = config
        self.embeds_only = not config.tie_word_embeddings and self._lacks_head(raw)
        """Whether the model was saved without the matrix that gives logits; it cannot answer."""
        if self.embeds_only:
            self.config = replace(config, tie_word_embeddings=True)

    @property
    def adapter_base(self) -> AdapterBase:
        return AdapterBase(self.config, self._family)

    @property
    def norms_are_offsets(self) -> bool:
        """Whether norm weights are stored as their difference from 1."""
        return self._family.norms_are_offsets

    @property
    def stored_shapes(self) -> list[tuple[tuple[int, ...], bool]]:
        return self._files.stored_shapes

    def stored_name(self, name: str) -> str:
        """The name in the files of the tensor `name`, which may be a part of it."""
        return self.place(name).name

    def tensor(self, name: str) -> Tensor:
        return unquantized(self.weight(name))

    def weight(self, name: str) -> Weight:
        place = self.place(name)
        whole = self._files.part(place.name, place.expert) if place.stacked else self._files.weight(place.name)
        weight = place.of(whole, self.config)
        if name.endswith("selection_bias"):
            return unquantized(weight).flatten()
        if self._family.norms_are_offsets and name.endswith("norm.weight"):
            return unquantized(weight).float() + 1
        heads = {"q_proj": self.config.num_heads, "k_proj": self.config.num_kv_heads}.get(name.split(".")[-2])
        if heads is None or not self._family.neighbours:
            return weight
        kind = self.config.kinds[self.config.layer_kinds[int(name.split(".")[2])]]
        return neighbours_apart(weight, heads, kind, self.config.head_dim)

    def place(self, name: str) -> TensorPart:
        """Where the files have the tensor `name`."""
        name = numbered(name, self.config.stored_layers)
        return stored_as(self._family.names, name, self._files.__contains__)

    def _lacks_head(self, raw: Mapping[str, Any]) -> bool:
        """Of a model that was saved as transformers' base class, such as Qwen3Model."""
        classes = raw.get("architectures") or []
        bare = (
            all(str(name).endswith(_HEADLESS) for name in classes) if classes else "embed_tokens.weight" in self._files
        )
        return bare and self.stored_name("lm_head.weight") not in self._files


def _refuse_classifier(folder: Path, raw: Mapping[str, Any]) -> None:
    for name in raw.get("architectures") or []:
        if str(name).endswith(("ForTokenClassification", "ForQuestionAnswering")):
            raise UnsupportedModel(
                f"{folder.name} is a classifier ({name}), which has no head for text: serve it with `kind: vllm`"
            )


def _eos_of_generation(folder: Path) -> frozenset[int]:
    path = folder / "generation_config.json"
    return token_ids(json_object(path).get("eos_token_id")) if path.exists() else frozenset()
