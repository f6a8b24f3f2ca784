"""The files of an encoder, a folder or a GGUF file: its shape, and its tensors by the names of BERT's."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from runtimes.llm.model.embedding_config import DenseLayout, PoolingName
from runtimes.llm.model.encoders.config import EncoderConfig, encodes, shape_of
from runtimes.llm.model.encoders.families import ENCODERS, EncoderFamily, family_of, stored_in
from runtimes.llm.model.matrix import Weight
from runtimes.llm.model.model_config import UnsupportedModel
from runtimes.llm.weights.gguf_checkpoint import GgufTensors
from runtimes.llm.weights.gguf_encoder import ENCODER_ARCHITECTURES, GgufFields, raw_config, stored_family
from runtimes.llm.weights.gguf_metadata import read_metadata
from runtimes.llm.weights.task_adapters import TaskAdapter, TaskFiles
from runtimes.llm.weights.tensor_files import TensorFiles, json_object

# Files of models that were trained with a head store the encoder's tensors under one of these.
PREFIXES = (
    "", "bert.", "roberta.", "mpnet.", "distilbert.", "model.", "new.", "gte.", "nomic_bert.", "electra.", "albert.",
    "deberta.",
)  # fmt: skip
_COMPUTED = ("inv_freq",)
"""The ends of tensors that follow from the configuration."""


class EncoderFiles(Protocol):
    config: EncoderConfig

    def weight(self, name: str) -> tuple[str, Weight]:
        """The name in the files, and the tensor. Raises UnsupportedModel if it is missing."""

    def unread(self) -> list[str]:
        """The tensors of layers that nothing has read: the model computes something that this engine does not."""


def is_encoder(path: Path) -> bool:
    """Whether the model at `path` only embeds texts. Raises UnsupportedModel for an encoder of no family that is
    supported."""
    if path.suffix == ".gguf":
        return read_metadata(path).get("general.architecture") in ENCODER_ARCHITECTURES
    raw = _raw(path)
    if raw.get("model_type") == "t5" and not _embeds(path, raw):
        raise UnsupportedModel(
            f"{path.name} is a T5 that answers with a decoder, which is not supported: only its encoders are, which"
            " have the class T5EncoderModel, or a modules.json of sentence-transformers"
        )
    return encodes(raw)


def _embeds(path: Path, raw: dict[str, Any]) -> bool:
    return (path / "modules.json").is_file() or "T5EncoderModel" in (raw.get("architectures") or [])


def _raw(path: Path) -> dict[str, Any]:
    file = path / "config.json"
    if not file.is_file():
        return {}
    try:
        raw = json.loads(file.read_bytes())
    except ValueError:
        return {}  # the loader of the model reports the defect
    return raw if isinstance(raw, dict) else {}


def encoder_files(path: Path, adapter: TaskAdapter | None = None) -> EncoderFiles:
    """Raises UnsupportedModel, InvalidCheckpoint or InvalidGguf for an unusable model."""
    try:
        return GgufEncoderFiles(path) if path.suffix == ".gguf" else FolderEncoderFiles(path, adapter)
    except (TypeError, ArithmeticError, AttributeError, KeyError, IndexError) as error:
        raise UnsupportedModel(f"the configuration of {path.name} is not valid: {error!r}") from None


class FolderEncoderFiles:
    def __init__(self, folder: Path, adapter: TaskAdapter | None = None) -> None:
        raw = json_object(folder / "config.json")
        self._family = ENCODERS[family_of(raw)]
        self.config = shape_of(self._family, raw)
        self._files = TaskFiles(TensorFiles(folder), adapter)
        self._read = set[str]()

    def weight(self, name: str) -> tuple[str, Weight]:
        places = stored_in(self._family, name)
        spelled = [(prefix + place.name, place) for place in places for prefix in PREFIXES]
        stored, place = next((one for one in spelled if one[0] in self._files), spelled[0])
        self._read.add(stored)
        return stored, place.of(self._files.tensor(stored), self.config)

    def unread(self) -> list[str]:
        layers = tuple(f"{prefix}{self._family.layers}." for prefix in PREFIXES)
        return sorted(
            name for name in {*self._files} - self._read if name.startswith(layers) and not name.endswith(_COMPUTED)
        )


class GgufEncoderFiles:
    """Norm weights are whole in these files."""

    def __init__(self, path: Path) -> None:
        self._tensors = GgufTensors(path)
        fields = GgufFields(self._tensors.metadata, self._tensors)
        self._names: EncoderFamily = stored_family(fields)
        shape = shape_of(ENCODERS[ENCODER_ARCHITECTURES[fields.architecture].family], raw_config(fields))
        self.config = replace(shape, norm_offset=0.0)
        self._read = set[str]()

    def weight(self, name: str) -> tuple[str, Weight]:
        place = stored_in(self._names, name)[0]
        self._read.add(place.name)
        return place.name, place.of(self._tensors.weight(place.name), self.config)

    def unread(self) -> list[str]:
        layers = f"{self._names.layers}."
        return sorted(name for name in self._tensors.names if name.startswith(layers) and name not in self._read)


def gguf_dense(path: Path, pooling: PoolingName) -> tuple[DenseLayout, ...]:
    """The dense layers of an encoder's GGUF file, which have neither bias nor activation. `pooling` is what the file or
    the model's settings declare. Raises UnsupportedModel for a file without a part of its model."""
    tensors = GgufTensors(path)
    architecture = str(tensors.metadata.get("general.architecture"))
    if pooling == "auto" and ENCODER_ARCHITECTURES[architecture].undeclared:
        raise UnsupportedModel(
            f"{path.name} does not tell how vectors are made, and GGUF files of {architecture} lack the dense layers of"
            " sentence-t5 and gtr: name the Hugging Face folder of such a model. For one without such layers, set"
            " `pooling`"
        )
    shapes = [(name, tensors.shape(f"{name}.weight")) for name in ("dense_2", "dense_3") if f"{name}.weight" in tensors]
    if ENCODER_ARCHITECTURES[architecture].dense and not shapes:
        raise UnsupportedModel(
            f"{path.name} lacks the model's dense layers, and its vectors would be others: convert it with"
            " `--sentence-transformers-dense-modules`, or name the model's Hugging Face folder"
        )
    if shapes and not ENCODER_ARCHITECTURES[architecture].dense:
        raise UnsupportedModel(f"{path.name} has a dense layer for every token, which is not supported")
    return tuple(DenseLayout(name, shape[1], shape[0]) for name, shape in shapes)
