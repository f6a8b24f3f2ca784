"""The encoder of pictures and its connector.

SigLIP's transformer (Zhai et al. 2023, https://arxiv.org/abs/2303.15343) over patches; then neighbouring patches
become one row (pixel shuffle) that a matrix projects to the size of the text's embeddings.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from runtimes.llm.memory import allocating, memory_of, require
from runtimes.llm.model.matrix import unquantized
from runtimes.llm.vision.settings import VisionSettings
from runtimes.llm.weights.loader import DeviceName, DtypeName, check_weight, choose_device, choose_dtype
from runtimes.llm.weights.quantized_files import QuantizedFiles, quantization_settings
from runtimes.llm.weights.tensor_files import TensorFiles, json_object

_NAME = "model.vision_model."
_CONNECTOR = "model.connector.modality_projection.proj.weight"
_ADVICE = "take a smaller model"

Linear = tuple[Tensor, Tensor]
"""A matrix [out, in] or the weight of a norm, and a bias."""


@dataclass(frozen=True, slots=True)
class _Layer:
    first_norm: Linear
    qkv: Linear
    attention_out: Linear
    second_norm: Linear
    up: Linear
    down: Linear


class VisionTower:
    """Turns tiles into rows. `tensor(name, shape)` returns the weight of that name in the dtype to compute with."""

    def __init__(self, settings: VisionSettings, tensor: Callable[[str, tuple[int, ...]], Tensor]) -> None:
        self.settings = settings
        self._tensor = tensor
        hidden, inner, side = settings.hidden, settings.inner, settings.patch
        self._patches = self._linear(f"{_NAME}embeddings.patch_embedding", hidden, 3, side, side)
        count = (settings.image_size // side) ** 2
        places = tensor(f"{_NAME}embeddings.position_embedding.weight", (count, hidden))
        self._places = places[self._positions(places.device)]
        self._layers = [
            self._layer(f"{_NAME}encoder.layers.{index}.", hidden, inner) for index in range(settings.layers)
        ]
        self._norm = self._linear(f"{_NAME}post_layernorm", hidden)
        self._connector = tensor(_CONNECTOR, (settings.text_hidden, hidden * settings.shuffle**2))
        self._approximate = "tanh" if settings.activation == "gelu_pytorch_tanh" else "none"

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def rows(self, tile: bytes) -> Tensor:
        """The rows of a tile, [rows, hidden of the text], on the CPU."""
        weight, bias = self._patches
        pixels = self.normalised(tile).to(weight.device, weight.dtype)
        patches = functional.conv2d(pixels[None], weight, bias, stride=self.settings.patch)
        hidden = patches[0].flatten(1).T + self._places
        for layer in self._layers:
            hidden = hidden + self._attended(layer, self._normed(hidden, layer.first_norm))
            inner = functional.linear(self._normed(hidden, layer.second_norm), *layer.up)
            hidden = hidden + functional.linear(functional.gelu(inner, approximate=self._approximate), *layer.down)
        rows: Tensor = functional.linear(self._shuffled(self._normed(hidden, self._norm)), self._connector)
        return rows.cpu()

    def normalised(self, tile: bytes) -> Tensor:
        """The numbers of a tile's pixels, [3, tile, tile], float32."""
        settings, side = self.settings, self.settings.tiles.tile
        pixels = np.frombuffer(tile, np.uint8).reshape(side, side, 3)
        scaled = (pixels.astype(np.float64) * settings.scale).astype(np.float32)
        numbers = (scaled - np.array(settings.mean, np.float32)) / np.array(settings.deviation, np.float32)
        return torch.from_numpy(numbers.transpose(2, 0, 1).copy())

    def _attended(self, layer: _Layer, normed: Tensor) -> Tensor:
        heads = functional.linear(normed, *layer.qkv).unflatten(1, (3, self.settings.heads, -1))
        query, key, value = heads.permute(1, 2, 0, 3)[:, None].unbind(0)
        attended = functional.scaled_dot_product_attention(query, key, value)
        return functional.linear(attended[0].transpose(0, 1).flatten(1), *layer.attention_out)

    def _shuffled(self, hidden: Tensor) -> Tensor:
        """Squares of patches side by side: [patches², hidden] → [rows, hidden × shuffle²]."""
        step, side = self.settings.shuffle, self.settings.patches
        squares = hidden.view(side // step, step, side // step, step, -1)
        return squares.transpose(1, 2).reshape(self.settings.rows, -1)

    def _normed(self, rows: Tensor, norm: Linear) -> Tensor:
        return functional.layer_norm(rows, norm[0].shape, *norm, self.settings.eps)

    def _positions(self, device: torch.device) -> Tensor:
        """The place of each patch among those that the encoder was made for, in transformers' arithmetic."""
        side = self.settings.image_size // self.settings.patch
        edges = torch.arange(1 / side, 1.0, 1 / side)
        count = torch.tensor(self.settings.patches)
        parts = (torch.arange(self.settings.patches, dtype=torch.float32) * (1.0 / count)).clamp(max=1.0 - 1e-6)
        places = torch.bucketize(parts, edges, right=True)
        return (places[:, None] * side + places).flatten().to(device)

    def _layer(self, name: str, hidden: int, inner: int) -> _Layer:
        parts = [self._linear(f"{name}self_attn.{part}_proj", hidden, hidden) for part in "qkv"]
        return _Layer(
            first_norm=self._linear(f"{name}layer_norm1", hidden),
            qkv=(torch.cat([weight for weight, _ in parts]), torch.cat([bias for _, bias in parts])),
            attention_out=self._linear(f"{name}self_attn.out_proj", hidden, hidden),
            second_norm=self._linear(f"{name}layer_norm2", hidden),
            up=self._linear(f"{name}mlp.fc1", inner, hidden),
            down=self._linear(f"{name}mlp.fc2", hidden, inner),
        )

    def _linear(self, name: str, out: int, *into: int) -> Linear:
        return self._tensor(f"{name}.weight", (out, *into)), self._tensor(f"{name}.bias", (out,))


def load_tower(folder: Path, settings: VisionSettings, dtype: DtypeName, device: DeviceName) -> VisionTower:
    """The encoder in `folder`. Raises UnsupportedModel, InvalidCheckpoint, NotEnoughMemory, or ValueError for a missing
    device."""
    target = choose_device(device)
    number = choose_dtype(dtype, target)
    files = QuantizedFiles(TensorFiles(folder), quantization_settings(json_object(folder / "config.json")))
    require("the encoder of pictures", settings.numbers * number.itemsize, memory_of(target).available, _ADVICE)

    def tensor(name: str, shape: tuple[int, ...]) -> Tensor:
        weight = unquantized(files.weight(name))
        check_weight(name, weight, shape)
        return weight.to(target, number)

    with allocating("the encoder of pictures", _ADVICE):
        return VisionTower(settings, tensor)
