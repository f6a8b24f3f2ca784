"""Models whose files do not describe their tensors: the configuration must, and is checked without the framework."""

from __future__ import annotations

from pathlib import Path

from runtimes.tensor.backends.base import ModelLoadError
from runtimes.tensor.configuration.model_config import ModelConfig

TORCH_FILENAMES = ("model.pt", "model.pt2", "model.safetensors", "model.pth")


def is_declared(backend: str, config: ModelConfig, folder: Path) -> bool:
    """Whether the model's file describes no tensors. `backend` is our name."""
    return backend == "python" or (backend == "torch" and not _is_exported(config, folder))


def declared(backend: str, config: ModelConfig) -> ModelConfig:
    """The configuration, which is complete. Raises `ModelLoadError`."""
    if not config.inputs or not config.outputs:
        raise ModelLoadError(
            "the model's file does not describe its inputs and outputs: write them in the configuration"
        )
    if backend == "torch" and any(spec.datatype == "BYTES" for spec in (*config.inputs, *config.outputs)):
        raise ModelLoadError("PyTorch has no BYTES tensors: use the python backend")
    return config


def _is_exported(config: ModelConfig, folder: Path) -> bool:
    """Among PyTorch's files, only those of torch.export describe their tensors."""
    names = (config.default_model_filename,) if config.default_model_filename else TORCH_FILENAMES
    return next((name for name in names if (folder / name).exists()), "").endswith(".pt2")
