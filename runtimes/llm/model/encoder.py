"""The BERT family: encoders, which attend to a whole text at once and represent its meaning.

BERT (Devlin et al. 2019, https://arxiv.org/abs/1810.04805) and RoBERTa, on which MiniLM, bge, e5, gte and most other
embedding models are based. T is the number of tokens in a step; texts are concatenated without padding. Matrices are
[out, in]; queries, keys and values are one matrix.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor
from torch.nn import functional

from runtimes.llm.model.embedding_config import EncoderConfig
from runtimes.llm.model.matrix import Weight, concatenated, linear
from runtimes.llm.sequence import Chunk

TensorSource = Callable[[str, tuple[int, ...]], Weight]
"""The weight of that name, which must have that shape, in the dtype and on the device to compute with."""

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "gelu_tanh": lambda rows: functional.gelu(rows, approximate="tanh"),
    "relu": functional.relu,
}


@dataclass(frozen=True, slots=True)
class _Linear:
    weight: Weight
    bias: Tensor

    def __call__(self, rows: Tensor) -> Tensor:
        return linear(rows, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class _Norm:
    weight: Tensor
    bias: Tensor
    eps: float

    def __call__(self, rows: Tensor) -> Tensor:
        return functional.layer_norm(rows, self.weight.shape, self.weight, self.bias, self.eps)


@dataclass(frozen=True, slots=True)
class _Layer:
    qkv: _Linear
    attention_out: _Linear
    attention_norm: _Norm
    up: _Linear
    down: _Linear
    norm: _Norm


class Encoder:
    """An executor of hidden states alone, without a cache: a chunk is a whole text."""

    def __init__(self, config: EncoderConfig, tensor: TensorSource) -> None:
        self.config = config
        read = _Reader(config, tensor)
        hidden = config.hidden_size
        self._words = read.plain("embeddings.word_embeddings.weight", config.vocab_size, hidden)
        places = read.plain("embeddings.position_embeddings.weight", config.num_positions, hidden)
        # Every token is of a text's first part.
        part = read.plain("embeddings.token_type_embeddings.weight", config.num_types, hidden)[0]
        self._places = places[config.first_position :] + part
        self._norm = read.norm("embeddings.LayerNorm")
        self._layers = [read.layer(f"encoder.layer.{index}") for index in range(config.num_layers)]
        self._activation = _ACTIVATIONS[config.activation]

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def hidden(self, chunks: Sequence[Chunk]) -> Tensor:
        """Hidden states of the last layer, [T, hidden], float32. Each chunk is a whole text."""
        order = sorted(range(len(chunks)), key=lambda i: len(chunks[i].token_ids))
        texts = [chunks[i].token_ids for i in order]
        device = self._words.device
        token_ids = torch.tensor([token for text in texts for token in text], device=device)
        positions = torch.cat([torch.arange(len(text), device=device) for text in texts])
        alike = [(len(list(group)), length) for length, group in groupby(map(len, texts))]
        states = self._forward(token_ids, positions, alike).float().split([len(text) for text in texts])
        places = sorted(range(len(order)), key=order.__getitem__)
        return torch.cat([states[place] for place in places])

    def _forward(self, token_ids: Tensor, positions: Tensor, alike: list[tuple[int, int]]) -> Tensor:
        """`alike` lists runs of consecutive texts of one length, as number and length: [T] → [T, hidden]."""
        hidden = self._norm(self._words[token_ids] + self._places[positions])
        for layer in self._layers:
            qkv = layer.qkv(hidden).view(len(hidden), 3, self.config.num_heads, -1)
            hidden = layer.attention_norm(hidden + layer.attention_out(_attended(qkv, alike)))
            hidden = layer.norm(hidden + layer.down(self._activation(layer.up(hidden))))
        return hidden


def _attended(qkv: Tensor, alike: list[tuple[int, int]]) -> Tensor:
    """Every token attends to its whole text: [T, 3, heads, size] → [T, heads × size]. Texts of one length at once."""
    outputs, first = [], 0
    for count, length in alike:
        rows = qkv[first : first + count * length].view(count, length, *qkv.shape[1:])
        query, key, value = rows.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value)
        outputs.append(attended.transpose(1, 2).reshape(count * length, -1))
        first += count * length
    return torch.cat(outputs)


class _Reader:
    """Reads parts of the model from its tensors."""

    def __init__(self, config: EncoderConfig, tensor: TensorSource) -> None:
        self._config = config
        self._tensor = tensor

    def layer(self, name: str) -> _Layer:
        hidden, inner = self._config.hidden_size, self._config.intermediate_size
        qkv = [self.linear(f"{name}.attention.self.{part}", hidden, hidden) for part in ("query", "key", "value")]
        return _Layer(
            qkv=_Linear(concatenated([part.weight for part in qkv]), torch.cat([part.bias for part in qkv])),
            attention_out=self.linear(f"{name}.attention.output.dense", hidden, hidden),
            attention_norm=self.norm(f"{name}.attention.output.LayerNorm"),
            up=self.linear(f"{name}.intermediate.dense", inner, hidden),
            down=self.linear(f"{name}.output.dense", hidden, inner),
            norm=self.norm(f"{name}.output.LayerNorm"),
        )

    def linear(self, name: str, rows: int, columns: int) -> _Linear:
        return _Linear(self._tensor(f"{name}.weight", (rows, columns)), self.plain(f"{name}.bias", rows))

    def norm(self, name: str) -> _Norm:
        size = self._config.hidden_size
        weight, bias = self.plain(f"{name}.weight", size), self.plain(f"{name}.bias", size)
        return _Norm(weight, bias, self._config.layer_norm_eps)

    def plain(self, name: str, *shape: int) -> Tensor:
        weight = self._tensor(name, shape)
        assert isinstance(weight, Tensor)  # only matrices of layers are quantized
        return weight
