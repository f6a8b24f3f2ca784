"""all-MiniLM-L6-v2: a BERT encoder of six layers (Devlin et al. 2019) that turns a sentence into 384 numbers.

Parameters are named as in the published checkpoint.
"""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional

WIDTH, LAYERS, HEADS, INNER, WORDS, POSITIONS, EPS = 384, 6, 12, 1536, 30_522, 512, 1e-12


class Embeddings(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(WORDS, WIDTH)
        self.position_embeddings = nn.Embedding(POSITIONS, WIDTH)
        self.token_type_embeddings = nn.Embedding(2, WIDTH)
        self.LayerNorm = nn.LayerNorm(WIDTH, EPS)

    def forward(self, ids: Tensor) -> Tensor:
        places = self.position_embeddings.weight[: ids.shape[1]]
        return self.LayerNorm(self.word_embeddings(ids) + places + self.token_type_embeddings.weight[0])


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            part(x).view(batch, length, HEADS, -1).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        return (
            functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            .transpose(1, 2)
            .reshape(batch, length, WIDTH)
        )


class Output(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, WIDTH)
        self.LayerNorm = nn.LayerNorm(WIDTH, EPS)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        return self.LayerNorm(self.dense(x) + residual)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.ModuleDict({"self": SelfAttention(), "output": Output(WIDTH)})
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(WIDTH, INNER)})
        self.output = Output(INNER)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.attention["output"](self.attention["self"](x, mask), x)
        return self.output(functional.gelu(self.intermediate["dense"](x)), x)


class Model(nn.Module):
    """`input_ids` and `attention_mask` [B, S] → `last_hidden_state` [B, S, 384], `sentence_embedding` [B, 384]."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings = Embeddings()
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList([Layer() for _ in range(LAYERS)])})

    def load_state_dict(self, state: dict[str, Tensor], strict: bool = True, assign: bool = False) -> Any:
        """The checkpoint has a pooler too, which sentences do not use."""
        ours = {name: tensor for name, tensor in state.items() if name.partition(".")[0] != "pooler"}
        ours.pop("embeddings.position_ids", None)
        return super().load_state_dict(ours, strict, assign)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        x = self.embeddings(input_ids)
        seen = attention_mask[:, None, None, :].bool()
        for layer in self.encoder["layer"]:
            x = layer(x, seen)
        weights = attention_mask[..., None].to(x.dtype)
        mean = (x * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
        return {"last_hidden_state": x, "sentence_embedding": functional.normalize(mean, dim=1)}
