"""The shapes of mixtures of experts and of latent attention."""

from dataclasses import dataclass
from typing import Literal

from runtimes.llm.model.shapes.checks import MAX_EXPERTS, MAX_LATENT, UnsupportedModel, check_number, checked_count

Scoring = Literal["softmax", "sigmoid", "softmax_of_chosen", "sparsemixer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertShape:
    """The MLPs of a layer of which a router chooses some for each token.

    The router's scores are a softmax of all logits, a sigmoid of each, or a softmax of the `chosen` logits alone
    (`softmax_of_chosen`); `sparsemixer` is Phi-3.5's own. The `chosen` greatest are taken, of the `chosen_groups` best
    of `groups` neighbouring groups; `selection_bias` is added for the choice alone. The scores are divided by their
    sum if `normalized`, then multiplied by `scale`. One more MLP of `shared_size` computes every token; the sigmoid of
    a product of its own (`shared_gate`) may weigh it. `biases` are those of the router and of all experts.
    """

    count: int
    chosen: int
    intermediate_size: int
    scoring: Scoring = "softmax"
    normalized: bool = False
    scale: float = 1.0
    groups: int = 1
    chosen_groups: int = 1
    selection_bias: bool = False
    best_of_group: int = 2
    """The scores whose sum is a group's."""
    shared_size: int = 0
    shared_gate: bool = False
    biases: bool = False
    jitter: float = 0.0
    """Of `sparsemixer`: how near to the best a logit must be to count."""
    read: int = 0
    """The numbers that an expert reads and gives, if a matrix makes them of the hidden state, and another turns them
    back."""
    apart: bool = False
    """Whether they and the MLP of all tokens have norms of their own (gemma/mixture.py), and every expert a factor."""
    weighs_inputs: bool = False
    """Whether what an expert reads is multiplied by its weight, and not what it gives."""

    def __post_init__(self) -> None:
        checked_count("number of experts", self.count, MAX_EXPERTS)
        checked_count("number of experts of a token", self.chosen, self.count)
        checked_count("intermediate size of an expert", self.intermediate_size)
        checked_count("number of groups of experts", self.groups, self.count)
        checked_count("number of groups of a token", self.chosen_groups, self.groups)
        check_number("routed_scaling_factor", self.scale)
        if self.read:
            checked_count("moe_latent_size", self.read)
        if self.shared_size:
            checked_count("intermediate size of the shared expert", self.shared_size)
        size = self.count // self.groups
        if self.count % self.groups or self.chosen > size * self.chosen_groups or (self.groups > 1 and size < 2):
            raise UnsupportedModel(
                f"{self.chosen} of {self.count} experts cannot be of {self.chosen_groups} of {self.groups} groups"
            )
        if self.scoring == "sparsemixer" and (self.chosen, self.groups) != (2, 1):
            raise UnsupportedModel(f"sparsemixer chooses 2 experts of one group, not {self.chosen} of {self.groups}")


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexShape:
    """The scores of positions of which a token attends to the `most` best (latents/sparse.py): `heads` of `size`
    numbers. `layers` have an indexer; each other takes the selection of the last one before it."""

    heads: int
    size: int
    most: int
    layers: frozenset[int]
    neighbours: bool = False

    def __post_init__(self) -> None:
        checked_count("index_n_heads", self.heads, MAX_LATENT)
        checked_count("index_head_dim", self.size, MAX_LATENT)
        checked_count("index_topk", self.most)
        if 0 not in self.layers:
            raise UnsupportedModel("the first layer takes the selection of an indexer, and none is before it")


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentShape:
    """Attention to latents of `rank` numbers (latents/latent.py). A head's query has `turned_dim` dimensions with a
    position and `plain_dim` without; its value has `value_dim`. Queries have a latent of their own if `query_rank`.
    Rows of the files that turn together are `neighbours`, (2i, 2i + 1)."""

    query_rank: int
    rank: int
    plain_dim: int
    turned_dim: int
    value_dim: int
    neighbours: bool = True
    norm_eps: float = 1e-6
    index: IndexShape | None = None

    def __post_init__(self) -> None:
        for name, value in (
            ("kv_lora_rank", self.rank), ("qk_nope_head_dim", self.plain_dim), ("v_head_dim", self.value_dim),
            ("qk_rope_head_dim", self.turned_dim), ("q_lora_rank", self.query_rank or 1),
        ):  # fmt: skip
            checked_count(name, value, MAX_LATENT)
        if self.index is not None and (not self.query_rank or self.index.size < self.turned_dim):
            raise UnsupportedModel("an indexer without q_lora_rank, or of fewer dimensions than are turned")
        if self.turned_dim % 2:
            raise UnsupportedModel(f"the configuration's qk_rope_head_dim is {self.turned_dim}: pairs of it turn")
