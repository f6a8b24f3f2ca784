"""The part of a model that one of several processes computes (Shoeybi et al. 2019, Megatron-LM,
https://arxiv.org/abs/1909.08053).

Every process, a rank, has some of the heads, and some of the neurons of every MLP and of every expert. These are rows
of the matrices before them (queries, keys, values, gate and up), and columns of those after them. So a rank's outputs
of attention and MLP are a part of a sum, which `RankGroup.summed` completes. Each rank has some rows of the vocabulary:
embeddings are a sum too, in which the others have zeros, and logits are joined. Norms and routers are whole everywhere.

With fewer key heads than ranks, neighbouring ranks have the same key head.
"""

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from runtimes.llm.model.matrix import GROUP, GroupQuantized, Weight, WeightsName, rows_of, unquantized
from runtimes.llm.model.model_config import ModelShape, UnsupportedModel

_ROWS = frozenset({"q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "sinks"})
_COLUMNS = frozenset({"o_proj", "down_proj"})
_VOCABULARY = frozenset({"embed_tokens", "lm_head"})
_MOST_NAMED = 64
"""The largest number of ranks that an error proposes."""


class RankGroup(Protocol):
    """The ranks of a model: they call the same methods in the same order, with tensors of equal shapes."""

    @property
    def split(self) -> "ModelSplit":
        """What this rank has."""

    def summed(self, part: Tensor) -> Tensor:
        """The sum of all ranks' parts, in every rank, of the shape and dtype of the part."""

    def joined(self, part: Tensor) -> Tensor:
        """Rank 0 gets [rows, vocab] of all ranks' [rows, own part of the vocabulary]. What others get means nothing."""


@dataclass(frozen=True, slots=True)
class ModelSplit:
    """The part of a model of the shape `whole` that `rank` of `size` has."""

    rank: int
    size: int
    whole: ModelShape

    @classmethod
    def of(cls, whole: ModelShape, rank: int, size: int) -> "ModelSplit":
        """Raises UnsupportedModel for a model that cannot be split among so many, with the reason."""
        reason = _unsplittable(whole) or _uneven(whole, size)
        if reason is not None:
            raise UnsupportedModel(f"tensor_parallel is {size}: {reason}")
        return cls(rank, size, whole)

    @property
    def shape(self) -> ModelShape:
        """The shape of the part, but for its vocabulary, which is the whole one: the layers are those of a smaller
        model."""
        whole, experts = self.whole, self.whole.experts
        if experts is not None:
            sizes = experts.intermediate_size // self.size, experts.shared_size // self.size
            experts = replace(experts, intermediate_size=sizes[0], shared_size=sizes[1])
        return replace(
            whole,
            num_heads=whole.num_heads // self.size,
            num_kv_heads=max(1, whole.num_kv_heads // self.size),
            intermediate_size=max(1, whole.intermediate_size // self.size),
            mlp_sizes=tuple(size // self.size for size in whole.mlp_sizes),
            experts=experts,
        )

    @property
    def vocabulary(self) -> range:
        """The tokens whose rows of embedding and head this rank has."""
        return self.vocabulary_of(self.rank)

    def vocabulary_of(self, rank: int) -> range:
        tokens = self.whole.vocab_size
        return range(tokens * rank // self.size, tokens * (rank + 1) // self.size)

    def whole_shape(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape in the files of the tensor `name`, of which this rank's part has `shape`."""
        module = _module(name)
        if module in _VOCABULARY:
            return (self.whole.vocab_size, *shape[1:])
        if module in _ROWS:
            times = self.size
            if module in ("k_proj", "v_proj"):
                times = min(times, self.whole.num_kv_heads)
            return (shape[0] * times, *shape[1:])
        if module in _COLUMNS and len(shape) == 2:
            return (shape[0], shape[1] * self.size)
        return shape

    def part(self, name: str, weight: Weight, how: WeightsName) -> Weight:
        """This rank's part of the whole tensor `name`, which is then stored as `how` selects.

        Raises UnsupportedModel if groups of quantized numbers would have to be cut.
        """
        module = _module(name)
        if module in _VOCABULARY:
            return rows_of(weight, slice(self.vocabulary.start, self.vocabulary.stop))
        if module in _ROWS:
            return rows_of(weight, self._rows(module, weight.shape[0]))
        if module not in _COLUMNS:
            return weight
        if len(weight.shape) == 1:  # a bias, which the sum has once
            return weight if self.rank == 0 else torch.zeros_like(unquantized(weight))
        count = weight.shape[1] // self.size
        return _columns(name, weight, slice(count * self.rank, count * (self.rank + 1)), how)

    def _rows(self, module: str, rows: int) -> slice:
        if module in ("k_proj", "v_proj") and (heads := self.whole.num_kv_heads) < self.size:
            size, head = rows // heads, self.rank * heads // self.size
            return slice(size * head, size * (head + 1))
        count = rows // self.size
        return slice(count * self.rank, count * (self.rank + 1))


def _module(name: str) -> str:
    """The last part of a tensor's name that says which matrix it belongs to."""
    return name.removesuffix(".weight").removesuffix(".bias").rpartition(".")[2]


def _columns(name: str, weight: Weight, columns: slice, how: WeightsName) -> Weight:
    if isinstance(weight, GroupQuantized) and how in ("auto", "unquantized"):
        weight = unquantized(weight)
    count = columns.stop - columns.start
    if isinstance(weight, GroupQuantized):
        if count % weight.group:
            raise UnsupportedModel(_cut(name, weight.group, count))
        groups = slice(columns.start // weight.group, columns.stop // weight.group)
        offsets = None if weight.offsets is None else weight.offsets[:, groups].contiguous()
        codes, scales = weight.codes[:, columns].contiguous(), weight.scales[:, groups].contiguous()
        return replace(weight, codes=codes, scales=scales, offsets=offsets)
    if how in ("int8", "int4") and count % GROUP and not weight.shape[1] % GROUP:
        raise UnsupportedModel(_cut(name, GROUP, count))
    return weight[:, columns].contiguous()


def _cut(name: str, group: int, count: int) -> str:
    return (
        f"tensor {name} is quantized in groups of {group} numbers, and a rank would have {count} of a row, which cuts a"
        " group: take `weights: unquantized`, or another tensor_parallel"
    )


# ── refusals ──────────────────────────────────────────────────────────────────────────────────────────


def _unsplittable(whole: ModelShape) -> str | None:
    """The part of the model that has no split."""
    if whole.recurrent is not None:
        return "a model with recurrent layers cannot be split, because their state is not divided among ranks"
    if whole.conv_layers:
        return "a model with short convolutions cannot be split, because they mix all channels of a token"
    if whole.latent is not None:
        return "a model with latent attention cannot be split, because all heads read the same latents"
    if whole.streams is not None:
        return "a model with several hidden states of a token cannot be split, because all ranks would compute them"
    if whole.per_layer is not None:
        return "a model with embeddings for each layer cannot be split, because all ranks would hold them"
    if any(kind.heads is not None for kind in whole.kinds):
        return "a model whose layers differ in their heads cannot be split, because a number must divide all"
    if whole.straight_attention or whole.straight_mlp:
        return "a model with one matrix in the place of attention or an MLP cannot be split, because nothing divides it"
    if whole.experts is not None and whole.experts.apart:
        return "a model with experts apart from an MLP cannot be split, because each has norms of all its outputs"
    if any(whole.sparsity):
        return "a model with sparse gates cannot be split, because their threshold depends on all neurons of an MLP"
    if whole.qk_norm == "whole":
        return "a model whose norm of queries spans all heads cannot be split, because no rank has all of them"
    return None


def _uneven(whole: ModelShape, size: int) -> str | None:
    """The number that `size` ranks cannot share evenly, and the numbers of ranks that can."""
    uneven = _divided(whole, size)
    if uneven is None:
        return None
    fitting = [str(n) for n in range(1, min(whole.num_heads, _MOST_NAMED) + 1) if _divided(whole, n) is None]
    return f"{uneven} cannot be shared evenly; for this model it may be {', '.join(fitting)}"


def _divided(whole: ModelShape, size: int) -> str | None:
    if whole.num_heads % size:
        return f"{whole.num_heads} heads"
    if whole.num_kv_heads % size and size % whole.num_kv_heads:
        return f"{whole.num_kv_heads} key heads"
    experts = whole.experts
    dense = experts is None or any(whole.experts_of(layer) is None for layer in range(whole.num_layers))
    sizes = whole.mlp_sizes or (whole.intermediate_size,)
    if dense and (uneven := [one for one in sizes if one % size]):
        return f"{uneven[0]} neurons of an MLP"
    if experts is not None and experts.intermediate_size % size:
        return f"{experts.intermediate_size} neurons of an expert"
    if experts is not None and experts.shared_size % size:
        return f"{experts.shared_size} neurons of the shared expert"
    return f"{whole.vocab_size} tokens" if whole.vocab_size < size else None
