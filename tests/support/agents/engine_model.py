"""A model for the bundled engine that answers every prompt with one word, however long the prompt is.

Its layers add nothing, so the next token depends on the last one only: the word, then the end of the turn.
"""

from pathlib import Path

import torch

from runtimes.llm.weights.store import resolve
from tests.runtimes.llm.reference import save_safetensors, tiny_llama, transformers_tokenizer

WORD = "ready"
TOKENS = 65536


def engine_model(folder: Path) -> Path:
    """A folder with the model, and SmolLM2's tokenizer and template."""
    folder.mkdir()
    tokenizer = transformers_tokenizer(resolve("bundled:smollm2-135m-instruct", progress=False))
    (word,) = tokenizer.encode(WORD)
    model = tiny_llama(
        vocab_size=len(tokenizer), max_position_embeddings=TOKENS, num_hidden_layers=1, tie_word_embeddings=False,
        eos_token_id=tokenizer.eos_token_id, bos_token_id=tokenizer.bos_token_id,
    )  # fmt: skip
    with torch.no_grad():
        for name, weights in model.named_parameters():
            weights.fill_(1.0 if "norm" in name else 0.0)
        model.model.embed_tokens.weight[:, 0] = 1.0
        model.model.embed_tokens.weight[word] = torch.eye(model.config.hidden_size)[1]
        model.lm_head.weight[word, 0] = 9.0
        model.lm_head.weight[tokenizer.eos_token_id, 1] = 9.0
    tokenizer.save_pretrained(folder)
    return save_safetensors(model, folder)
