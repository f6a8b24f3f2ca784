"""A mixture of experts of a billion numbers, in the layout of Qwen 3 MoE: random weights, the bundled model's words.

Only its speed means anything. One token uses an eighth of the experts.
"""

from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np

from loadtests.llm.copying import BUNDLED
from loadtests.native import CACHE
from runtimes.llm.weights.gguf_metadata import read_metadata
from runtimes.llm.weights.store import resolve

LAYERS: Final = 16
HIDDEN: Final = 1024
HEADS: Final = 16
KEY_HEADS: Final = 4
HEAD: Final = 64
EXPERTS: Final = 64
USED: Final = 8
NEURONS: Final = 320
"""Of each expert."""
CONTEXT: Final = 8192


def mixture() -> Path:
    """The GGUF file with 16 bits a number, written once."""
    path = CACHE / "models" / "mixture-1b.gguf"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        write(fresh, read_metadata(resolve(BUNDLED)))
        fresh.rename(path)
    return path


def write(path: Path, vocabulary: dict[str, Any], layers: int = LAYERS) -> None:
    """Write a model of so many layers, whose words are those of `vocabulary`, the metadata of another model."""
    writer = gguf.GGUFWriter(path, "qwen3moe")
    _describe(writer, vocabulary, layers)
    rng = np.random.default_rng(11)

    def add(name: str, *shape: int) -> None:
        scale = shape[-1] ** -0.5
        writer.add_tensor(name, (rng.standard_normal(shape, np.float32) * scale).astype(np.float16))

    def add_norm(name: str, size: int) -> None:
        writer.add_tensor(name, np.ones(size, np.float32))

    words = len(vocabulary["tokenizer.ggml.tokens"])
    add("token_embd.weight", words, HIDDEN)
    add("output.weight", words, HIDDEN)
    add_norm("output_norm.weight", HIDDEN)
    for layer in range(layers):
        at = f"blk.{layer}."
        add_norm(f"{at}attn_norm.weight", HIDDEN)
        add_norm(f"{at}ffn_norm.weight", HIDDEN)
        add_norm(f"{at}attn_q_norm.weight", HEAD)
        add_norm(f"{at}attn_k_norm.weight", HEAD)
        add(f"{at}attn_q.weight", HEADS * HEAD, HIDDEN)
        add(f"{at}attn_k.weight", KEY_HEADS * HEAD, HIDDEN)
        add(f"{at}attn_v.weight", KEY_HEADS * HEAD, HIDDEN)
        add(f"{at}attn_output.weight", HIDDEN, HEADS * HEAD)
        writer.add_tensor(f"{at}ffn_gate_inp.weight", rng.standard_normal((EXPERTS, HIDDEN), np.float32) / 32)
        add(f"{at}ffn_gate_exps.weight", EXPERTS, NEURONS, HIDDEN)
        add(f"{at}ffn_up_exps.weight", EXPERTS, NEURONS, HIDDEN)
        add(f"{at}ffn_down_exps.weight", EXPERTS, HIDDEN, NEURONS)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _describe(writer: gguf.GGUFWriter, vocabulary: dict[str, Any], layers: int) -> None:
    writer.add_block_count(layers)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(NEURONS * USED)
    writer.add_expert_feed_forward_length(NEURONS)
    writer.add_expert_count(EXPERTS)
    writer.add_expert_used_count(USED)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    writer.add_tokenizer_model(vocabulary["tokenizer.ggml.model"])
    writer.add_tokenizer_pre(vocabulary["tokenizer.ggml.pre"])
    writer.add_token_list(vocabulary["tokenizer.ggml.tokens"])
    writer.add_token_types(vocabulary["tokenizer.ggml.token_type"])
    writer.add_token_merges(vocabulary["tokenizer.ggml.merges"])
    writer.add_bos_token_id(vocabulary["tokenizer.ggml.bos_token_id"])
    writer.add_eos_token_id(vocabulary["tokenizer.ggml.eos_token_id"])
    writer.add_add_bos_token(False)
    if (template := vocabulary.get("tokenizer.chat_template")) is not None:
        writer.add_chat_template(template)
