"""AWQ (Lin et al. 2023, https://arxiv.org/abs/2306.00978): columns that multiply large inputs are rounded more finely.

A column is multiplied by a factor, and what gives its input is divided by it: the model stays the same, and the codes
do not. Factors are powers of the inputs' mean sizes; the power is the one whose products change least (section 3.2
there).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from runtimes.llm.calibration.gptq import output_errors
from runtimes.llm.calibration.layer_run import Inputs
from runtimes.llm.model.model_config import ModelShape
from runtimes.llm.model.tensor_names import TensorPart, rows_of_part
from runtimes.llm.weights.quantized_writer import Bits, quantized
from runtimes.llm.weights.safetensors_files import SafetensorsCheckpoint
from runtimes.llm.weights.tensor_files import TensorFiles

_POWERS = [step / 20 for step in range(1, 20)]
_LEAST_MEAN = 1e-4


@dataclass(frozen=True, slots=True)
class Fold:
    """The matrices that read the same inputs, and what gives these: a norm, or rows of a matrix. Names without their
    layer. Of the inputs, runs of `head_dim` that `shared` heads read are the same numbers."""

    producer: str
    consumers: tuple[str, ...]
    shared: int = 1
    head_dim: int = 1


def folds(config: ModelShape, index: int) -> Iterator[Fold]:
    """Those of the layer `index`, as far as one thing gives the inputs and nothing else reads them."""
    alone = config.pre_norms and not config.parallel
    attends = config.attends(index) and config.latent is None
    if attends:
        beside = index in config.recurrent_layers
        if alone and not beside:
            yield Fold("input_layernorm", tuple(f"self_attn.{part}_proj" for part in "qkv"))
        yield Fold(
            "self_attn.v_proj",
            ("self_attn.o_proj",),
            config.num_heads // config.heads_of(index)[0],
            config.heads_of(index)[1],
        )
    experts, size = config.experts_of(index), config.mlp_size(index)
    parts = ("gate_proj", "up_proj") if config.gated else ("up_proj",)
    if alone and experts is None and size:
        yield Fold("pre_feedforward_layernorm", tuple(f"mlp.{part}" for part in parts))
    if config.gated and config.activation != "clamped_swiglu":
        inner = ["mlp" if experts is None else "mlp.shared_expert"] * bool(size)
        inner += [f"mlp.experts.{expert}" for expert in range(experts.count if experts is not None else 0)]
        yield from (Fold(f"{one}.up_proj", (f"{one}.down_proj",)) for one in inner)


def best_factors(
    weights: Sequence[Tensor], inputs: Inputs, fold: Fold, bits: Bits, group: int
) -> tuple[Tensor, Tensor] | None:
    """The factors of what gives the inputs, and those of the columns, [in]; None if none are better than 1."""
    mean = (inputs.magnitude / inputs.count).clamp(min=_LEAST_MEAN)
    each = mean.view(-1, fold.shared, fold.head_dim).mean(dim=1)  # [heads, head_dim] of the producer
    best, chosen = _error(weights, torch.ones_like(mean), inputs, bits, group), None
    for power in _POWERS:
        factors = each**power
        factors = factors / (factors.max() * factors.min()).sqrt()
        columns = factors[:, None].expand(-1, fold.shared, -1).flatten()
        if (error := _error(weights, columns, inputs, bits, group)) < best:
            best, chosen = error, (factors.flatten(), columns)
    return chosen


def _error(weights: Sequence[Tensor], columns: Tensor, inputs: Inputs, bits: Bits, group: int) -> float:
    gram = inputs.gram / torch.outer(columns, columns)
    scaled = [(weight.float() * columns).to(weight.dtype) for weight in weights]
    return sum(float(output_errors(one, quantized(one, bits, group), gram, bits).sum()) for one in scaled)


class ScaledLayer:
    """The tensors of the layer `index` with AWQ's factors in them; `calibrated` matrices were searched for some.

    `inputs` and `matrices`, those that will be rounded, are by stored name. `fewest` rows are enough for a search.
    """

    def __init__(
        self,
        checkpoint: SafetensorsCheckpoint,
        files: TensorFiles,
        index: int,
        inputs: Mapping[str, Inputs],
        fewest: int,
    ) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.calibrated: set[str] = set()
        self._checkpoint = checkpoint
        self._files = files
        self._prefix = f"model.layers.{index}."
        self._inputs = {name: one for name, one in inputs.items() if one.count >= fewest}

    def scale(self, fold: Fold, bits: Bits, group: int) -> None:
        """Multiply what the fold's consumers read by the best factors; nothing if they cannot be moved."""
        names = list(dict.fromkeys(self._place(f"{one}.weight").name for one in fold.consumers))
        producer = self._place(f"{fold.producer}.weight")
        whole = [self._place(f"{one}.weight") for one in (*fold.consumers, fold.producer)]
        if not all(name in self._inputs for name in names) or any(one.stacked or one.transposed for one in whole):
            return
        self.calibrated.update(names)
        weights = [self._tensor(name) for name in names]
        best = best_factors(weights, self._inputs[names[0]], fold, bits, group)
        if best is None:
            return
        factors, columns = best
        for name, weight in zip(names, weights, strict=True):
            self.tensors[name] = (weight.float() * columns).to(weight.dtype)
        self._divide(producer, factors, fold.producer)
        bias = self._place(f"{fold.producer}.bias")
        if bias.name in self._files and bias.name != producer.name:
            self._divide(bias, factors, "")

    def _divide(self, place: TensorPart, factors: Tensor, norm: str) -> None:
        stored = self._tensor(place.name)
        divided = stored.float().clone()
        rows = rows_of_part(place.part, len(divided), self._checkpoint.config)
        offset = float(norm.endswith("norm") and self._checkpoint.norms_are_offsets)
        divisor = factors.view(-1, *[1] * (divided.dim() - 1))
        divided[rows] = (divided[rows] + offset) / divisor - offset
        self.tensors[place.name] = divided.to(stored.dtype)

    def _place(self, name: str) -> TensorPart:
        return self._checkpoint.place(self._prefix + name)

    def _tensor(self, name: str) -> Tensor:
        return self.tensors[name] if name in self.tensors else self._files.tensor(name)
