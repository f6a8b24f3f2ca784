"""The weights of the dense layers after pooling, from a folder in sentence-transformers' layout or a GGUF
file."""

from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from runtimes.llm.model.embedding_config import DenseLayout, EmbeddingConfig
from runtimes.llm.model.encoders.dense import DenseLayers
from runtimes.llm.model.model_config import UnsupportedModel
from runtimes.llm.weights.gguf_checkpoint import GgufTensors
from runtimes.llm.weights.loader import check_weight, hidden_size
from runtimes.llm.weights.tensor_files import TensorFiles


def load_dense(path: Path, config: EmbeddingConfig) -> DenseLayers | None:
    """None for a model without such layers. Raises UnsupportedModel or InvalidCheckpoint for unusable ones."""
    if not config.dense:
        return None
    width = hidden_size(path)
    for layout in config.dense:
        if layout.inputs != width:
            raise UnsupportedModel(f"{layout.name} takes {layout.inputs} numbers; the vector before it has {width}")
        width = layout.outputs
    read = _gguf_reader(path) if path.is_file() else _folder_reader(path)

    def tensor(layout: DenseLayout, part: str, shape: tuple[int, ...]) -> Tensor:
        weight = read(layout.name, part)
        check_weight(f"{part} of {layout.name}", weight, shape)
        return weight.float()

    return DenseLayers(config.dense, tensor)


def _folder_reader(path: Path) -> Callable[[str, str], Tensor]:
    return lambda name, part: TensorFiles(path / name).tensor(f"linear.{part}")


def _gguf_reader(path: Path) -> Callable[[str, str], Tensor]:
    tensors = GgufTensors(path)
    return lambda name, part: tensors.tensor(f"{name}.{part}")
