"""The weights of the dense layers after pooling, from a folder in sentence-transformers' layout."""

from pathlib import Path

from torch import Tensor

from runtimes.llm.model.dense import DenseLayers
from runtimes.llm.model.embedding_config import DenseLayout, EmbeddingConfig
from runtimes.llm.model.model_config import UnsupportedModel
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
    files = {layout.name: TensorFiles(path / layout.name) for layout in config.dense}

    def tensor(layout: DenseLayout, part: str, shape: tuple[int, ...]) -> Tensor:
        weight = files[layout.name].tensor(f"linear.{part}")
        check_weight(f"linear.{part} of {layout.name}", weight, shape)
        return weight.float()

    return DenseLayers(config.dense, tensor)
