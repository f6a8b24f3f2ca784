"""The fields of a GGUF file describe the model that config.json describes."""

from typing import Any

import pytest
import torch

from runtimes.llm.model.hugging_face import hugging_face_config
from runtimes.llm.model.model_config import ModelShape, UnsupportedModel
from runtimes.llm.weights.gguf_config import GgufModel, gguf_config

FIELDS = {
    "context_length": 4096,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "block_count": 4,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.layer_norm_rms_epsilon": 1e-5,
}
FOLDER = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}


class Tensors(dict[str, torch.Tensor]):
    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self[name].shape)

    def tensor(self, name: str) -> torch.Tensor:
        return self[name]


def described(architecture: str, fields: dict[str, Any], *tensors: str) -> ModelShape:
    metadata = {f"{architecture}.{key}": value for key, value in (FIELDS | fields).items()}
    metadata["general.architecture"] = architecture

    def field(key: str, *default: Any) -> Any:
        return metadata.get(key, *default) if default else metadata[key]

    stored = {name: torch.ones(16) for name in tensors}
    return gguf_config(GgufModel(field, Tensors({"token_embd.weight": torch.ones(256, 64), **stored})))


def test_norms_that_a_family_has_no_place_for_are_refused() -> None:
    """Command-R+ has them; Command-R, of the same architecture, has none."""
    fields = {"logit_scale": 0.06}
    assert described("command-r", fields).qk_norm is None
    with pytest.raises(UnsupportedModel, match="norms of queries and keys are not supported for command-r"):
        described("command-r", fields, "blk.0.attn_q_norm.weight")


@pytest.mark.parametrize("context", [4096, 8192])
def test_layers_of_a_window_as_long_as_the_context_turn(context: int) -> None:
    fields = {"context_length": context, "attention.sliding_window": 4096, "logit_scale": 0.06}
    kinds = of_layers(described("cohere2", fields))
    assert [kind.rope is not None for kind in kinds] == [True, True, True, False]
    assert [kind.window for kind in kinds] == [None if context == 4096 else 4096] * 3 + [None]
    folder = {"model_type": "cohere2", "sliding_window": 4096, "max_position_embeddings": context}
    assert kinds == of_layers(hugging_face_config(FOLDER | folder))


def test_the_positions_of_gpt_oss_are_those_of_its_folder() -> None:
    fields = {
        "context_length": 131_072, "attention.sliding_window": 128, "attention.key_length": 64, "expert_count": 4,
        "expert_used_count": 2, "rope.freq_base": 150_000.0, "rope.scaling.type": "yarn", "rope.scaling.factor": 32.0,
        "rope.scaling.original_context_length": 4096,
    }  # fmt: skip
    folder = {
        "model_type": "gpt_oss", "head_dim": 64, "num_local_experts": 4, "num_experts_per_tok": 2,
        "max_position_embeddings": 131_072,
    }  # fmt: skip
    assert of_layers(described("gpt-oss", fields)) == of_layers(hugging_face_config(FOLDER | folder))


def of_layers(shape: ModelShape) -> list[Any]:
    return [shape.kinds[kind] for kind in shape.layer_kinds]
