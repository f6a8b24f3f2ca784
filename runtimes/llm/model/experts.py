"""A mixture of experts: a router chooses some MLPs for every token (Shazeer et al. 2017,
https://arxiv.org/abs/1701.06538)."""

import torch
from torch import Tensor
from torch.nn import functional

from runtimes.llm.model.activations import activated
from runtimes.llm.model.layers import Experts
from runtimes.llm.model.matrix import GroupQuantized, Weight, linear, rows_of
from runtimes.llm.model.model_config import ExpertShape, ModelShape


def mixed(
    config: ModelShape, shape: ExpertShape, experts: Experts, rows: Tensor, judged: Tensor | None = None
) -> Tensor:
    """The weighted outputs of each token's experts: [T, hidden] → [T, hidden]. The router reads `judged` if given."""
    chosen, weights = routed(shape, experts, rows if judged is None else judged)
    if experts.factors is not None:
        weights = weights * experts.factors[chosen]
    if experts.into is None or experts.out is None:
        return _mixed(config, shape, experts, rows, chosen, weights)
    return linear(_mixed(config, shape, experts, linear(rows, experts.into), chosen, weights), experts.out)


def _mixed(
    config: ModelShape, shape: ExpertShape, experts: Experts, rows: Tensor, chosen: Tensor, weights: Tensor
) -> Tensor:
    if rows.is_cuda:
        return _mixed_at_once(config, shape, experts, rows, chosen, weights)
    places = chosen.flatten().argsort(stable=True)
    output, first = torch.zeros_like(rows, dtype=torch.float32), 0
    for expert, count in enumerate(torch.bincount(chosen.flatten(), minlength=shape.count).tolist()):
        if count:
            of = places[first : first + count]
            tokens = of // shape.chosen
            own = weights.flatten()[of, None]
            if shape.weighs_inputs:
                outputs = _expert(config, shape, experts, expert, (rows[tokens] * own).to(rows.dtype)).float()
            else:
                outputs = _expert(config, shape, experts, expert, rows[tokens]).float() * own
            output.index_add_(0, tokens, outputs)
        first += count
    return output.to(rows.dtype)


def routed(shape: ExpertShape, experts: Experts, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Each token's experts and their weights: int64 and float32 [T, chosen]."""
    logits = functional.linear(rows.float(), experts.router, experts.router_bias)
    if shape.scoring == "sparsemixer":
        return _sparsemixer(logits, shape.jitter)
    if shape.scoring == "softmax_of_chosen":
        best, chosen = logits.topk(shape.chosen)
        return chosen, best.softmax(dim=-1) * shape.scale
    scores = logits.sigmoid() if shape.scoring == "sigmoid" else logits.softmax(dim=-1)
    # Sigmoids of great logits are all 1, and their order is that of the logits.
    choice = logits if shape.scoring == "sigmoid" and shape.groups == 1 else scores
    if experts.selection_bias is not None:
        choice = scores + experts.selection_bias
    if shape.groups > 1:
        choice = _of_the_best_groups(choice, shape)
    chosen = choice.topk(shape.chosen).indices
    weights = scores.gather(1, chosen)
    if shape.normalized:
        weights = weights / weights.sum(dim=-1, keepdim=True).clamp(min=1e-20)
    return chosen, weights * shape.scale


def _of_the_best_groups(choice: Tensor, shape: ExpertShape) -> Tensor:
    """-∞ for experts outside of the groups whose best are the best."""
    grouped = choice.unflatten(1, (shape.groups, -1))
    best = grouped.topk(shape.best_of_group).values.sum(dim=-1).topk(shape.chosen_groups).indices
    among = torch.zeros(grouped.shape[:2], dtype=torch.bool, device=choice.device).scatter(1, best, True)
    return grouped.masked_fill(~among[..., None], -torch.inf).flatten(1)


def _sparsemixer(logits: Tensor, jitter: float) -> tuple[Tensor, Tensor]:
    """Phi-3.5's: each of two experts is weighed among the logits that are near to its own."""
    chosen, weights, left = [], [], logits
    for _ in range(2):
        best, expert = left.max(dim=-1, keepdim=True)
        far = (best - logits) / logits.abs().clamp(min=best) > 2 * jitter
        chosen.append(expert)
        weights.append(left.masked_fill(far, -torch.inf).softmax(dim=-1).gather(1, expert))
        left = left.scatter(1, expert, -torch.inf)
    return torch.cat(chosen, dim=1), torch.cat(weights, dim=1)


def _expert(config: ModelShape, shape: ExpertShape, experts: Experts, expert: int, rows: Tensor) -> Tensor:
    def product(rows: Tensor, weight: Weight, bias: Tensor | None) -> Tensor:
        size = weight.shape[0] // shape.count
        part = slice(expert * size, (expert + 1) * size)
        return linear(rows, rows_of(weight, part), None if bias is None else bias[part].to(rows.dtype))

    inner = activated(config, product(rows, experts.gate_up, experts.gate_up_bias))
    return product(inner, experts.down, experts.down_bias)


def _mixed_at_once(
    config: ModelShape, shape: ExpertShape, experts: Experts, rows: Tensor, chosen: Tensor, weights: Tensor
) -> Tensor:
    """The same in a fixed number of operations whose sizes do not depend on the choice, as a CUDA graph needs it."""
    flat = chosen.flatten()
    order = flat.argsort(stable=True)
    of = flat[order]
    ends = torch.searchsorted(of, torch.arange(shape.count, device=rows.device), right=True).int()

    def product(rows: Tensor, weight: Weight, bias: Tensor | None) -> Tensor:
        plain = weight.dequantized() if isinstance(weight, GroupQuantized) else weight
        stacked = plain.view(shape.count, -1, plain.shape[1]).transpose(1, 2)
        products = functional.grouped_mm(rows, stacked, offs=ends)
        return products if bias is None else products + bias.view(shape.count, -1)[of].to(rows.dtype)

    given, own = rows[order // shape.chosen], weights.flatten()[order, None]
    if shape.weighs_inputs:
        given, own = (given * own).to(rows.dtype), torch.ones_like(own)
    inner = activated(config, product(given, experts.gate_up, experts.gate_up_bias))
    outputs = product(inner, experts.down, experts.down_bias).float() * own
    return torch.zeros_like(rows, dtype=torch.float32).index_add_(0, order // shape.chosen, outputs).to(rows.dtype)
