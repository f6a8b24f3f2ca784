"""Writes a folder of safetensors with its matrices in 8 or 4 bits, in the layout of compressed-tensors.

Engines other than this one read that layout too. A matrix is rounded to the nearest codes around 0, and of the widths
tried for a group the one with the least error is taken.
"""

import errno
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import torch
from safetensors.torch import save_file
from torch import Tensor

from runtimes.llm.model.model_config import UnsupportedModel
from runtimes.llm.weights.quantized_files import quantization_settings
from runtimes.llm.weights.tensor_files import TensorFiles, json_object

Bits = Literal[4, 8]
SHARD_BYTES = 1 << 30
# Layers of the kind that compressed-tensors calls Linear, by the names that transformers gives them. The embedding and
# the head stay as they are: every token uses both.
_LINEAR = re.compile(r"layers\.\d+\..*(_proj|\.w[123]|\.fc[12]|\.dense)\.weight")
_WEIGHTS = re.compile(r".*\.(safetensors|bin|pt|pth|gguf|onnx|h5|msgpack)(\.index\.json)?")
_WIDTHS = (1.0, 0.95, 0.9, 0.85, 0.8)
"""Shares of a group's width that its codes span: of a smaller one the steps are finer, and numbers outside become its
ends."""
_NUMBERS_AT_ONCE = 1 << 21


Codes = tuple[Tensor, Tensor]
"""Of a matrix [out, in]: codes uint8 [out, in] in whose middle is 0, and scales [out, in / group] in its own type."""


def write_quantized(source: Path, target: Path, bits: Bits, group: int) -> int:
    """Write `source`, a folder with config.json, to `target`, a new folder; returns the number of quantized matrices.

    Reads and writes a tensor at a time, and holds a shard of SHARD_BYTES. Raises UnsupportedModel for a model that is
    quantized, or has nothing to quantize; FileExistsError.
    """
    with QuantizedFolder(source, target, bits, group) as folder:
        for name in folder.files:
            tensor = folder.files.tensor(name)
            folder.add(name, tensor, quantized(tensor, bits, group) if name in folder.matrices else None)
        return folder.close()


class QuantizedFolder:
    """`target`, a new folder with the tensors of `source`, of which `matrices` may be written in codes. It is written
    under another name beside it until `close`, so that a run that ends early leaves no folder that looks whole.

    Raises as `write_quantized` does.
    """

    def __init__(self, source: Path, target: Path, bits: Bits, group: int) -> None:
        self._raw = json_object(source / "config.json")
        if quantization_settings(self._raw) is not None:
            raise UnsupportedModel(f"{source.name} is quantized already: take the model that it was made from")
        self.files = TensorFiles(source)
        self.matrices = {name for name in self.files if _fits(name, self.files.shape(name), group)}
        if not self.matrices:
            raise UnsupportedModel(f"{source.name} has no matrix whose rows are groups of {group}")
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
        target.parent.mkdir(parents=True, exist_ok=True)
        self._staging = tempfile.TemporaryDirectory(
            dir=target.parent, prefix=f".{target.name}-", ignore_cleanup_errors=True
        )
        self._source, self._target, self._bits, self._group = source, target, bits, group
        self._made = Path(self._staging.name) / target.name  # others may read it, unlike the folder around it
        self._made.mkdir()
        self._shards = _Shards(self._made)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._staging.cleanup()

    def add(self, name: str, tensor: Tensor, codes: Codes | None = None) -> None:
        """Write the tensor `name`: its `codes` if there are some."""
        if codes is None:
            self._shards.add(name, tensor)
            return
        self._shards.add(f"{name}_packed", _words(codes[0], self._bits))
        self._shards.add(f"{name}_scale", codes[1])
        self._shards.add(f"{name}_shape", torch.tensor(tensor.shape))

    def close(self) -> int:
        """Write the rest, config.json and the other files; returns the number of matrices."""
        self._shards.close()
        ignored = sorted(
            name.removesuffix(".weight")
            for name in self.files
            if name.endswith(".weight") and name not in self.matrices and len(self.files.shape(name)) == 2
        )
        config = {**self._raw, "quantization_config": _settings(self._bits, self._group, ignored)}
        (self._made / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        for path in self._source.iterdir():
            if path.is_file() and path.name != "config.json" and not _WEIGHTS.fullmatch(path.name):
                shutil.copyfile(path, self._made / path.name)
        self._made.replace(self._target)
        return len(self.matrices)


def _fits(name: str, shape: tuple[int, ...], group: int) -> bool:
    return _LINEAR.search(name) is not None and len(shape) == 2 and shape[1] % group == 0


def _settings(bits: Bits, group: int, ignored: list[str]) -> Mapping[str, Any]:
    weights = {"num_bits": bits, "type": "int", "symmetric": True, "strategy": "group", "group_size": group}
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "quantization_status": "compressed",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
        "ignore": list(dict.fromkeys([*ignored, "lm_head"])),
    }


# ── codes ─────────────────────────────────────────────────────────────────────────────────────────────


def quantized(weight: Tensor, bits: Bits, group: int) -> Codes:
    """The nearest codes."""
    out, columns = weight.shape
    codes = torch.empty(out, columns, dtype=torch.uint8)
    scales = torch.empty(out, columns // group, dtype=weight.dtype)
    count = max(_NUMBERS_AT_ONCE // columns, 1)
    for first in range(0, out, count):
        part = slice(first, first + count)
        groups = weight[part].float().unflatten(-1, (-1, group))
        scales[part] = nearest_scale(groups, bits, weight.dtype)
        rounded = rounded_to(groups, scales[part].float(), bits) + (1 << bits - 1)
        codes[part] = rounded.flatten(-2).to(torch.uint8)
    return codes, scales


def nearest_scale(groups: Tensor, bits: Bits, dtype: torch.dtype) -> Tensor:
    """Of the widths tried, each group's scale with the least squared error, as `dtype` rounds it.

    The number farthest from 0 becomes the least code, for which its scale has the other sign: there is one code more
    on that side.
    """
    least, greatest = torch.aminmax(groups, dim=-1)
    farthest = torch.where(-least > greatest, least, greatest)
    best, chosen = torch.full(farthest.shape, torch.inf), torch.zeros(farthest.shape, dtype=dtype)
    half = 1 << bits - 1
    for width in (*_WIDTHS, half / (half - 1)):  # the last leaves out the code that has no other of its size
        scale = (farthest * width / -half).to(dtype)
        numbers = rounded_to(groups, scale.float(), bits) * scale.float()[..., None]
        error = (numbers - groups).square().sum(-1)
        chosen = torch.where(error < best, scale, chosen)
        best = torch.minimum(error, best)
    return chosen


def rounded_to(groups: Tensor, scales: Tensor, bits: Bits) -> Tensor:
    """The nearest codes of numbers [..., group] to their scales [...], from -2^(bits - 1) on, float32."""
    inverse = torch.where(scales == 0, 0.0, 1 / scales)
    half = 1 << bits - 1
    return (groups * inverse[..., None]).round().clamp(-half, half - 1)


def numbers_of(codes: Codes, bits: Bits) -> Tensor:
    """The numbers of codes, [out, in], float32."""
    group, middle = codes[0].shape[1] // codes[1].shape[1], 1 << bits - 1
    return (codes[0].float() - middle) * codes[1].float().repeat_interleave(group, dim=1)


def _words(codes: Tensor, bits: Bits) -> Tensor:
    """Rows of codes in int32 words, the first in the lowest bits; the last word is filled up with 0."""
    codes = torch.nn.functional.pad(codes, (0, -codes.shape[1] % (32 // bits))).contiguous()
    if bits == 4:
        codes = codes[:, 0::2] | codes[:, 1::2] << 4
    return codes.contiguous().view(torch.int32)


@dataclass(slots=True)
class _Shards:
    """Tensors on their way to files of SHARD_BYTES, whose number is in their names only when it is known."""

    folder: Path
    _held: dict[str, Tensor] = field(default_factory=dict)
    _shards: list[list[str]] = field(default_factory=list)
    _total: int = 0

    def add(self, name: str, tensor: Tensor) -> None:
        self._held[name] = tensor.contiguous()
        self._total += tensor.nbytes
        if sum(one.nbytes for one in self._held.values()) >= SHARD_BYTES:
            self._flush()

    def close(self) -> None:
        """Write the rest, and the index."""
        self._flush()
        places: dict[str, str] = {}
        for number, names in enumerate(self._shards, 1):
            title = f"model-{number:05}-of-{len(self._shards):05}.safetensors"
            (self.folder / f"{number}.part").rename(self.folder / title)
            places |= dict.fromkeys(names, title)
        index = {"metadata": {"total_size": self._total}, "weight_map": places}
        (self.folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")

    def _flush(self) -> None:
        if self._held:
            self._shards.append(list(self._held))
            save_file(self._held, self.folder / f"{len(self._shards)}.part", metadata={"format": "pt"})
            self._held.clear()
