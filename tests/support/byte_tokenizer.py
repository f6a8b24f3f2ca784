"""A tokenizer whose tokens are bytes, and the same tokens for grammars."""

from collections.abc import Sequence

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from runtimes.llm.grammar.build import Vocabulary
from runtimes.llm.text.tokenizer import Tokenizer

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
READS = Vocabulary([*[bytes([byte]) for byte in range(256)], b"<end>"], [256], [256]).tokenizer()
"""The tokenizer of a grammar's matcher: bytes, and 256 for the end."""


def byte_tokenizer(words: Sequence[str] = (), marks: Sequence[str] = (), control: bool = False) -> Tokenizer:
    """256 tokens of one byte each, and two control tokens; then `words`, and `marks`, which may be control tokens."""
    vocab = {character: i for i, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    names = ["<|im_start|>", "<|im_end|>"]
    backend.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in names])
    backend.add_tokens([AddedToken(text, normalized=False, special=False) for text in words])
    add = backend.add_special_tokens if control else backend.add_tokens
    add([AddedToken(mark, normalized=False, special=control) for mark in marks])
    return Tokenizer(
        backend,
        kind="byte_level",
        named={"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"},
        eos_token_ids=frozenset({257}),
        add_bos=False,
        chat_template=CHATML,
    )
