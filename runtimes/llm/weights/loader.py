"""Weights and configuration of a Llama model, from a GGUF file or a Hugging Face folder.

A model that cannot be loaded is refused with `UnsupportedModel`, which names the missing part: a guess would load
and then talk nonsense. Of files that `torch.save` wrote, only tensors are unpickled: no code of a file runs.
"""

from pathlib import Path
from typing import Literal, Protocol

import torch
from torch import Tensor

from runtimes.llm.memory import allocating, memory_of, require
from runtimes.llm.model.layers import WHOLE
from runtimes.llm.model.llama import Llama
from runtimes.llm.model.matrix import GroupQuantized, Weight, WeightsName, held, held_bytes, moved
from runtimes.llm.model.model_config import ModelShape, UnsupportedModel
from runtimes.llm.model.split import ModelSplit, RankGroup
from runtimes.llm.native.build import targets
from runtimes.llm.weights.adapter_files import AdapterBase
from runtimes.llm.weights.encoder_files import encoder_files, is_encoder
from runtimes.llm.weights.gguf_checkpoint import GgufCheckpoint
from runtimes.llm.weights.safetensors_files import SafetensorsCheckpoint

_ADVICE = "take weights of fewer bits (weights: int8 or int4), or a smaller model"
DtypeName = Literal["auto", "float32", "bfloat16", "float16"]
DeviceName = Literal["auto", "cpu", "cuda"]


class Checkpoint(Protocol):
    """A model on disk: its shape, and its tensors by Hugging Face name."""

    config: ModelShape

    @property
    def adapter_base(self) -> AdapterBase:
        """What adapters are fitted to."""

    @property
    def stored_shapes(self) -> list[tuple[tuple[int, ...], bool]]:
        """The shapes of all tensors, and whether each can be stored as it is, in codes."""

    def stored_name(self, name: str) -> str:
        """The name in the files."""

    def tensor(self, name: str) -> Tensor:
        """The tensor on the CPU, dequantised if necessary. Raises UnsupportedModel for a missing tensor."""

    def weight(self, name: str) -> Weight:
        """The tensor as stored, scales of blocks in float32."""


def load_model(
    path: Path,
    *,
    dtype: DtypeName = "auto",
    device: DeviceName = "auto",
    weights: WeightsName = "auto",
    native: bool = True,
    ranks: RankGroup | None = None,
) -> Llama:
    """The model at `path`, a *.gguf file or a folder with config.json, ready to run on `device`.

    `dtype` is the number format to compute with, `weights` how matrices are stored (`quantize.held`), `native` whether
    the native step may compute. With `ranks` it is this rank's part: of a tensor of safetensors it reads no more, of
    other files a whole tensor at a time.

    Raises UnsupportedModel, FileNotFoundError for a missing path, ValueError for a missing device, NotEnoughMemory.
    """
    target = choose_device(device)
    if ranks is not None and target.type == "cuda":
        target = _gpu_of(ranks.split)
    number = choose_dtype(dtype, target, native=native)
    checkpoint = open_checkpoint(path)
    required = sum(
        held_bytes(shape, "unquantized" if weights == "stored" and not codes else weights, number)
        for shape, codes in checkpoint.stored_shapes
    )
    if ranks is not None and (ranks.split.rank or target.type == "cuda"):
        required //= ranks.split.size  # on a CPU, rank 0 sees to the memory of all
    require("the model", required, memory_of(target).available, _ADVICE)

    def tensor(name: str, shape: tuple[int, ...]) -> Weight:
        weight = checkpoint.weight(name)
        if ranks is not None:
            check_shape(checkpoint.stored_name(name), weight, ranks.split.whole_shape(name, shape))
            weight = ranks.split.part(name, weight, weights)
        check_weight(checkpoint.stored_name(name), weight, shape)
        if name.endswith(WHOLE):
            return moved(held(name, weight, "unquantized", torch.float32), target)
        # Vectors are few and small: norms need not lose accuracy.
        return moved(held(name, weight, weights, number if len(shape) > 1 else torch.float32), target)

    with allocating("the model", _ADVICE):
        return Llama(checkpoint.config if ranks is None else ranks.split.shape, tensor, ranks)


def _gpu_of(split: ModelSplit) -> torch.device:
    if split.size > (there := torch.cuda.device_count()):
        raise ValueError(f"tensor_parallel is {split.size}, and torch finds {there} GPUs: each rank needs its own")
    return torch.device("cuda", split.rank)


def check_weight(name: str, weight: Weight, shape: tuple[int, ...]) -> None:
    """Raises UnsupportedModel for a tensor that does not fit its name."""
    check_shape(name, weight, shape)
    if not weight.dtype.is_floating_point:
        raise UnsupportedModel(f"tensor {name} is of {weight.dtype}, which is not a type of weights")
    numbers = [weight.scales, weight.offsets] if isinstance(weight, GroupQuantized) else [weight]
    # A sum is infinite or none if one of its terms is, and costs no memory.
    if not all(bool(one.sum(dtype=torch.float32).isfinite()) for one in numbers if one is not None):
        raise UnsupportedModel(f"tensor {name} has numbers that are not finite: the file is damaged")


def check_shape(name: str, weight: Weight, shape: tuple[int, ...]) -> None:
    """Raises UnsupportedModel for a tensor of another shape."""
    if tuple(weight.shape) != shape:
        raise UnsupportedModel(f"tensor {name} is {list(weight.shape)}; the configuration requires {list(shape)}")


def open_checkpoint(path: Path) -> Checkpoint:
    """Read the configuration at `path`; tensors are read on demand."""
    if not path.exists():
        raise FileNotFoundError(f"there is no model at {path}")
    try:
        if path.is_dir():
            return SafetensorsCheckpoint(path)
        if path.suffix == ".gguf":
            return GgufCheckpoint(path)
    except (TypeError, AttributeError, KeyError, IndexError, ArithmeticError) as error:
        raise UnsupportedModel(f"the configuration of {path.name} is not valid: {error!r}") from error
    raise UnsupportedModel(f"{path.name} is neither a *.gguf file nor a folder of safetensors")


def hidden_size(path: Path) -> int:
    """The length of the states of the model at `path`, an encoder or a decoder."""
    if is_encoder(path):
        return encoder_files(path).config.hidden_size
    return open_checkpoint(path).config.hidden_size


def only_embeds(path: Path) -> bool:
    """Whether the decoder at `path` was saved without the matrix that gives logits."""
    checkpoint = open_checkpoint(path)
    return isinstance(checkpoint, SafetensorsCheckpoint) and checkpoint.embeds_only


def choose_device(name: DeviceName) -> torch.device:
    """`auto` is CUDA where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("device is cuda, but torch finds no CUDA device: use device cpu or auto")
    return torch.device(name)


def choose_dtype(name: DtypeName, device: torch.device, *, native: bool = False) -> torch.dtype:
    """`auto` is bfloat16 where the hardware multiplies it, or where the `native` step does; else float32.

    The native step needs bfloat16, and computes with it several times as fast as torch with either on any processor
    that it supports.
    """
    if name == "auto":
        cpu = torch.cpu.get_capabilities()
        hardware = device.type == "cuda" or cpu.get("avx512_bf16") or cpu.get("amx_bf16")
        return torch.bfloat16 if hardware or (native and targets()) else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[name]
