"""A model as Hugging Face publishes it: a folder with config.json and safetensors."""

from pathlib import Path

from torch import Tensor

from runtimes.llm.weights.hugging_face_config import hugging_face_config, norms_are_offsets, token_ids
from runtimes.llm.weights.safetensors_files import InvalidCheckpoint as InvalidCheckpoint
from runtimes.llm.weights.safetensors_files import SafetensorsFiles, json_object


class SafetensorsCheckpoint:
    """A Hugging Face folder: config.json and one model.safetensors, or shards listed in an index."""

    def __init__(self, folder: Path) -> None:
        raw = json_object(folder / "config.json")
        self.config = hugging_face_config(raw, _eos_of_generation(folder))
        self._norms_are_offsets = norms_are_offsets(raw)
        self._files = SafetensorsFiles(folder)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return self._files.shapes

    def tensor(self, name: str) -> Tensor:
        tensor = self._files.tensor(self._stored_name(name))
        return tensor.float() + 1 if self._norms_are_offsets and name.endswith("norm.weight") else tensor

    def weight(self, name: str) -> Tensor:
        return self.tensor(name)

    def _stored_name(self, name: str) -> str:
        """The name in the file. Tensors of the language part have a longer name if the model has other parts too."""
        longer = (f"language_model.{name}", name.replace("model.", "model.language_model.", 1))
        return next((stored for stored in (name, *longer) if stored in self._files), name)


def _eos_of_generation(folder: Path) -> frozenset[int]:
    path = folder / "generation_config.json"
    return token_ids(json_object(path).get("eos_token_id")) if path.exists() else frozenset()
