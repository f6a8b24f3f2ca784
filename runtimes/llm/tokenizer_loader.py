"""A model's tokenizer from its files: a GGUF file's metadata, or a Hugging Face folder's tokenizer.json.

Whatever cannot be reproduced exactly is refused: a tokenizer that is almost right makes a model almost right.
"""

import json
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers

from runtimes.llm.gguf_metadata import read_metadata
from runtimes.llm.tokenizer import PieceKind, Tokenizer, UnsupportedTokenizer

_LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2_SPLIT = _LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")
# GGUF's name for the way a vocabulary's texts were cut before its merges were learned → the expression, or
# None for GPT-2's own, which ByteLevel brings along. smollm also cuts between all digits.
_SPLITS = {
    "default": None, "gpt-2": None, "smollm": None,
    "llama-bpe": _LLAMA3_SPLIT, "llama3": _LLAMA3_SPLIT, "llama-v3": _LLAMA3_SPLIT, "smaug-bpe": _LLAMA3_SPLIT,
    "qwen2": _QWEN2_SPLIT, "deepseek-r1-qwen": _QWEN2_SPLIT,
}  # fmt: skip
_CONTROL, _USER_DEFINED = 3, 4
# Control tokens that end an answer whatever the metadata declares: an instruct model may end its turn with one
# and declare another. llama.cpp treats the same names so (llama-vocab.cpp, special_eog_ids).
_END_OF_ANSWER = frozenset(
    {"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|end_of_text|>", "<|end|>", "<end_of_turn>", "</s>"}
)


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of the model at `path`. Raises UnsupportedTokenizer, InvalidGguf or OSError."""
    try:
        return _from_folder(path) if path.is_dir() else _from_gguf(path)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise UnsupportedTokenizer(f"the tokenizer of {path.name} is incomplete: {error!r}") from error


# ── GGUF ──────────────────────────────────────────────────────────────────────────────────────────────


def _from_gguf(path: Path) -> Tokenizer:
    metadata = read_metadata(path)
    kind = metadata.get("tokenizer.ggml.model")
    if kind != "gpt2":
        raise UnsupportedTokenizer(
            f"a GGUF file with tokenizer kind {kind!r} is not supported, gpt2 (byte-level BPE) is:"
            " use the model's Hugging Face folder, which has a tokenizer.json"
        )
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]

    def token(name: str) -> str | None:
        id = metadata.get(f"tokenizer.ggml.{name}_token_id")
        return None if id is None else tokens[id]

    ends = {end for name in ("eos", "eot", "eom") if (end := token(name)) is not None}
    bos, eos = token("bos"), token("eos")
    kinds = metadata.get("tokenizer.ggml.token_type", [])
    control = {text for text, kind in zip(tokens, kinds, strict=False) if kind == _CONTROL}
    # Some converters mark these as ordinary tokens; text must not be able to spell them all the same.
    control |= ends | ({bos} if bos is not None else set())
    backend = _byte_level_bpe(metadata, tokens)
    backend.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in tokens if t in control])
    defined = [t for t, kind in zip(tokens, kinds, strict=False) if kind == _USER_DEFINED and t not in control]
    backend.add_tokens([AddedToken(t, normalized=False, special=False) for t in defined])
    return Tokenizer(
        backend,
        kind="byte_level",
        bos_token=bos,
        eos_token=eos,
        eos_token_ids=_ids(backend, ends | (control & _END_OF_ANSWER)),
        add_bos=metadata.get("tokenizer.ggml.add_bos_token", False),
        chat_template=metadata.get("tokenizer.chat_template"),
    )


def _byte_level_bpe(metadata: dict[str, Any], tokens: list[str]) -> tokenizers.Tokenizer:
    name = metadata.get("tokenizer.ggml.pre", "default")
    if name not in _SPLITS:
        raise UnsupportedTokenizer(f"pre-tokenizer {name!r} is not supported; these are: {', '.join(_SPLITS)}")
    # A merge's two sides are divided by the one space that is not its first character.
    merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
    ignore_merges = _SPLITS[name] is _LLAMA3_SPLIT  # Llama 3 takes a word that is a token whole
    model = models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges, ignore_merges=ignore_merges)
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = _pre_tokenizer(name)
    backend.decoder = decoders.ByteLevel()
    return backend


def _pre_tokenizer(name: str) -> pre_tokenizers.PreTokenizer:
    split = _SPLITS[name]
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split is None)
    if split is not None:
        return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(split), behavior="isolated"), byte_level])
    if name == "smollm":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    return byte_level


# ── Hugging Face ──────────────────────────────────────────────────────────────────────────────────────


def _from_folder(folder: Path) -> Tokenizer:
    file = folder / "tokenizer.json"
    if not file.exists():
        raise UnsupportedTokenizer(
            f"{folder.name} has no tokenizer.json: convert its tokenizer with"
            " `transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(folder)`"
        )
    try:
        backend = tokenizers.Tokenizer.from_str(file.read_text("utf-8"))
    except Exception as error:  # the library raises nothing more precise
        raise UnsupportedTokenizer(f"tokenizer.json cannot be read: {error}") from None
    config = _json(folder / "tokenizer_config.json")
    bos, eos = _token_text(config.get("bos_token")), _token_text(config.get("eos_token"))
    special = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
    declared = _json(folder / "generation_config.json").get("eos_token_id", [])
    ends = frozenset(declared if isinstance(declared, list) else [declared])
    leads = backend.encode("", add_special_tokens=True).ids[:1]
    return Tokenizer(
        backend,
        kind=_piece_kind(backend),
        bos_token=bos,
        eos_token=eos,
        eos_token_ids=ends | _ids(backend, (special & _END_OF_ANSWER) | ({eos} if eos is not None else set())),
        add_bos=bos in special and leads == [backend.token_to_id(bos)],
        chat_template=_folder_template(folder, config),
    )


def _piece_kind(backend: tokenizers.Tokenizer) -> PieceKind:
    decoder = json.loads(backend.to_str())["decoder"] or {}
    kinds = {decoder.get("type"), *(part["type"] for part in decoder.get("decoders", []))}
    if "ByteLevel" in kinds:
        return "byte_level"
    if kinds & {"ByteFallback", "Metaspace"}:
        return "sentencepiece"
    if "WordPiece" in kinds:
        return "wordpiece"
    raise UnsupportedTokenizer(
        f"tokenizer.json decodes by {decoder.get('type')}; ByteLevel, ByteFallback, Metaspace and"
        " WordPiece are supported"
    )


def _folder_template(folder: Path, config: dict[str, Any]) -> str | None:
    file = folder / "chat_template.jinja"
    if file.exists():
        return file.read_text("utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):  # several by name: [{"name": …, "template": …}]
        template = {entry["name"]: entry["template"] for entry in template}.get("default")
    return template


def _token_text(token: str | dict[str, Any] | None) -> str | None:
    return token["content"] if isinstance(token, dict) else token


def _json(file: Path) -> dict[str, Any]:
    if not file.exists():
        return {}
    content: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return content


def _ids(backend: tokenizers.Tokenizer, tokens: set[str]) -> frozenset[int]:
    return frozenset(id for token in tokens if (id := backend.token_to_id(token)) is not None)
