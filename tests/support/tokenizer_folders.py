"""Folders of small tokenizers in the layouts of published models: with and without a space in front of texts."""

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, trainers

CORPUS = [
    'Hello world, the "name" of it is {"name": true, "city": "Rome", "x": [1, 2, null, false]} and\n',
    "  two spaces\n\nnaïve café 日本語 привет 🎉 °C yes no maybe positive negative\n",
    "<tool_call>\n{ \"arguments\": {}}\n</tool_call> [TOOL_CALLS][{'a'}] <think> thoughts </think> strike < s> \\n",
] * 3
SPECIAL = ("<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>")
_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def _metaspace(scheme: str) -> Callable[[tokenizers.Tokenizer], None]:
    def lay_out(backend: tokenizers.Tokenizer) -> None:
        backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme, split=False)
        backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace("▁", scheme, False)])

    return lay_out


def _normalized(prefix: bool) -> Callable[[tokenizers.Tokenizer], None]:
    """Llama 2's first layout, and Gemma's, which has no prefix."""

    def lay_out(backend: tokenizers.Tokenizer) -> None:
        steps: list[Any] = [normalizers.Prepend("▁")] * prefix + [normalizers.Replace(" ", "▁")]
        backend.normalizer = normalizers.Sequence(steps)
        ends = [decoders.Strip(" ", 1, 0)] * prefix
        backend.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *ends]
        )

    return lay_out


def _byte_level(prefix: bool) -> Callable[[tokenizers.Tokenizer], None]:
    def lay_out(backend: tokenizers.Tokenizer) -> None:
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
        backend.decoder = decoders.ByteLevel()

    return lay_out


LAYOUTS: Mapping[str, Callable[[tokenizers.Tokenizer], None]] = {
    "prepend": _normalized(True),
    "metaspace first": _metaspace("first"),
    "metaspace always": _metaspace("always"),
    "gemma": _normalized(False),
    "byte level": _byte_level(False),
    "byte level, prefix": _byte_level(True),
}


@cache
def backend_json(layout: str) -> str:
    """The content of a tokenizer.json, of some 600 tokens."""
    backend = tokenizers.Tokenizer(models.BPE())
    LAYOUTS[layout](backend)
    alphabet = pre_tokenizers.ByteLevel.alphabet() if layout.startswith("byte") else []
    backend.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=400, show_progress=False, initial_alphabet=alphabet)
    )
    model = json.loads(backend.to_str())["model"]
    tokens = [*SPECIAL, *([] if alphabet else _BYTES), *sorted(model["vocab"], key=model["vocab"].get)]
    vocab = {token: id for id, token in enumerate(dict.fromkeys(tokens))}
    made = models.BPE(
        vocab, [tuple(merge) for merge in model["merges"]], unk_token="<unk>", byte_fallback=not alphabet, fuse_unk=True
    )
    whole = tokenizers.Tokenizer(made)
    LAYOUTS[layout](whole)
    whole.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    return whole.to_str()


def write_tokenizer(folder: Path, layout: str = "byte level", **config: Any) -> Path:
    """A folder with a tokenizer; `config` are more fields of tokenizer_config.json."""
    (folder / "tokenizer.json").write_text(backend_json(layout))
    named = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    whole = {"tokenizer_class": "PreTrainedTokenizerFast", **named, **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(whole))
    return folder
