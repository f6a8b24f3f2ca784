"""The rows of `families` for Gemma 3n and Gemma 4."""

from collections.abc import Mapping

from runtimes.llm.model import tensor_names
from runtimes.llm.model.family import Family
from runtimes.llm.model.family_features import Raw
from runtimes.llm.model.gemma import features


def _typed(raw: Raw, period: int) -> Raw:
    """With the types of layers, every `period`th of which attends to all tokens."""
    if raw.get("layer_types"):
        return raw
    layers = range(1, raw["num_hidden_layers"] + 1)
    return {**raw, "layer_types": ["sliding_attention" if n % period else "full_attention" for n in layers]}


GEMMA_FAMILIES: Mapping[str, Family] = {
    "gemma3n_text": Family(
        names=tensor_names.OWN,
        defaults={
            "vocab_size": 262_400, "hidden_size": 2048, "intermediate_size": 16_384, "num_hidden_layers": 35,
            "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256, "max_position_embeddings": 32_768,
            "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 512, "rope_theta": 1e6,
            "tie_word_embeddings": True, "final_logit_softcapping": 30.0, "vocab_size_per_layer_input": 262_144,
            "hidden_size_per_layer_input": 256, "altup_num_inputs": 4, "altup_active_idx": 0,
            "altup_correct_scale": True, "num_kv_shared_layers": 15, "laurel_rank": 64,
        },
        completed=lambda raw: features.of_each_layer(_typed(raw, 5)),
        features=features.gemma3n,
        local_rope=True,
        refused=("attention_bias",),
    ),
    "gemma4_text": Family(
        names=tensor_names.GEMMA4,
        defaults={
            "num_key_value_heads": 4, "head_dim": 256, "global_head_dim": 512, "max_position_embeddings": 131_072,
            "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 512, "tie_word_embeddings": True,
            "vocab_size_per_layer_input": 262_144, "hidden_size_per_layer_input": 256, "attention_k_eq_v": False,
        },
        keys={"num_experts_per_tok": "top_k_experts"},
        completed=lambda raw: features.gemma4_layers(_typed(raw, 6)),
        features=features.gemma4,
        heads=features.gemma4_heads,
        values_are_keys=lambda raw, layer: (
            bool(raw["attention_k_eq_v"]) and raw["layer_types"][layer] == "full_attention"
        ),
        refused=("attention_bias",),
    ),
}  # fmt: skip
