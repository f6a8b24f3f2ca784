"""Folders in sentence-transformers' layout, and its modules applied by hand."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

_ACTIVATIONS = {"Identity": lambda rows: rows, "Tanh": torch.tanh}


def module(kind: str, folder: str = "") -> dict[str, Any]:
    return {"idx": 0, "name": "0", "path": folder, "type": f"sentence_transformers.models.{kind}"}


def with_modules(
    folder: Path, *, pooling: str = "mean", dense: Sequence[tuple[int, int, bool, str]] = (), normalize: bool = True
) -> Path:
    """Add modules.json to a model's folder, with the folders of its modules. `dense` are inputs, outputs, whether
    biased, and the activation."""
    modules = [module("Transformer"), module("Pooling", "1_Pooling")]
    (folder / "1_Pooling").mkdir(exist_ok=True)
    modes = {f"pooling_mode_{mode}": mode.startswith(pooling) for mode in ("cls_token", "mean_tokens", "lasttoken")}
    write(folder / "1_Pooling", word_embedding_dimension=8, include_prompt=True, **modes)
    for place, (inputs, outputs, biased, activation) in enumerate(dense, 2):
        own = folder / f"{place}_Dense"
        own.mkdir(exist_ok=True)
        kind = "linear" if activation == "Identity" else "activation"
        function = f"torch.nn.modules.{kind}.{activation}"
        write(own, in_features=inputs, out_features=outputs, bias=biased, activation_function=function)
        tensors = {"linear.weight": torch.randn(outputs, inputs) / inputs**0.5}
        save_file(tensors | ({"linear.bias": torch.randn(outputs)} if biased else {}), own / "model.safetensors")
        modules.append(module("Dense", own.name))
    if normalize:
        modules.append(module("Normalize", f"{len(modules)}_Normalize"))
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


def write(folder: Path, **settings: Any) -> None:
    (folder / "config.json").write_text(json.dumps(settings))


def vector_of(folder: Path, states: Tensor) -> Tensor:
    """The vector of the text with these `states` [T, hidden], as the folder's modules.json lists the modules."""
    vector = states
    for entry in json.loads((folder / "modules.json").read_text()):
        kind, own = entry["type"].rpartition(".")[2], folder / entry["path"]
        settings = json.loads((own / "config.json").read_text()) if kind in ("Pooling", "Dense") else {}
        if kind == "Pooling":
            means = settings["pooling_mode_mean_tokens"]
            vector = states.mean(0) if means else states[0 if settings["pooling_mode_cls_token"] else -1]
        elif kind == "Dense":
            tensors = load_file(own / "model.safetensors")
            vector = tensors["linear.weight"] @ vector + tensors.get("linear.bias", 0.0)
            vector = _ACTIVATIONS[settings["activation_function"].rpartition(".")[2]](vector)
        elif kind == "Normalize":
            vector = vector / vector.norm()
    return vector
