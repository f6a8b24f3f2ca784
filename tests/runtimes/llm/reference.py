"""Models of transformers to compare with, and the judgement whether an answer is theirs."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from runtimes.llm.model.matrix import GroupQuantized, Weight
from runtimes.llm.weights import loader

# Two logits this near in float32 may swap places when the order of a sum changes.
TIE = 2e-4
PROMPTS = [[5], [7, 3, 9], list(range(10, 60)), [(7 * i) % 90 for i in range(150)]]
TINY_KV_BYTES = 2 * 2 * 2 * 8 * 4  # of tiny_llama: keys and values, layers, heads, head size, float32


def tiny_llama(**changes: Any) -> Any:
    """A random Llama: 96 tokens, 2 layers, 4 heads on 2 key heads, float32."""
    shape = {
        "vocab_size": 96,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "initializer_range": 0.4,  # large, so that the best token is seldom a near tie
        "eos_token_id": 95,
        "bos_token_id": 94,
        "tie_word_embeddings": True,
    }
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**(shape | changes))).eval()


def from_gguf(path: Path) -> Any:
    """The model in `path` by transformers' own reading of names, quantisation and row order, float32."""
    model = LlamaForCausalLM(LlamaConfig(**load_gguf_checkpoint(path)["config"])).eval()
    tensors = load_gguf_checkpoint(path, return_tensors=True, model_to_load=model)["tensors"]
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert (missing, unexpected) == (["lm_head.weight"], [])  # the head is the embedding
    model.tie_weights()
    return model


def save_safetensors(model: Any, folder: Path, **options: Any) -> Path:
    model.save_pretrained(folder, **options)
    return folder


def loaded_bytes(path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """What loading the model at `path` as stored, in bfloat16, requires of memory, and what its tensors then hold."""
    required: list[int] = []
    held: list[int] = []

    def moved(weight: Weight, device: torch.device) -> Weight:
        parts = [weight.codes, weight.scales, weight.offsets] if isinstance(weight, GroupQuantized) else [weight]
        held.extend(part.nbytes for part in parts if part is not None)
        return weight

    monkeypatch.setattr(loader, "moved", moved)
    monkeypatch.setattr(loader, "require", lambda consumer, amount, available, advice: required.append(amount))
    loader.load_model(path, dtype="bfloat16", device="cpu", weights="stored")
    return required[0], sum(held)


@torch.inference_mode()  # type: ignore[untyped-decorator]
def assert_greedy(model: Any, prompt: Sequence[int], answer: Sequence[int], *, tolerance: float = TIE) -> None:
    """Each token of `answer` is the likeliest of `model` after all tokens before it.

    So `answer` is the greedy answer of `model`. Where the two best logits tie within `tolerance`, either token
    is accepted.
    """
    ids = torch.tensor([[*prompt, *answer[:-1]]])
    logits = model(ids, logits_to_keep=len(answer)).logits[0]
    behind = logits.amax(dim=-1) - logits[torch.arange(len(answer)), torch.tensor(list(answer))]
    first = int((behind >= tolerance).int().argmax())
    best = int(logits[first].argmax())
    assert behind[first] < tolerance, f"token {first} is {answer[first]}, not {best}, which leads by {behind[first]}"


@cache
def transformers_tokenizer(model: Path) -> Any:
    """transformers' own reading of a GGUF file, which takes seconds."""
    return AutoTokenizer.from_pretrained(model.parent, gguf_file=model.name)
