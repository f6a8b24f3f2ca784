"""A model's tokenizer from its files: a GGUF file's metadata, or a folder's tokenizer.json.

A tokenizer that cannot be reproduced exactly is refused: a tokenizer that is almost right makes a model almost right.

The names of pre-tokenizers, the defaults for missing fields, and the rules for a model's name are llama.cpp's
(https://github.com/ggml-org/llama.cpp/blob/master/src/llama-vocab.cpp).
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from runtimes.llm.text.tokenizer import END_OF_ANSWER, PieceKind, Tokenizer, UnsupportedTokenizer, ids_of
from runtimes.llm.weights.gguf_metadata import read_metadata

_REST = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3_SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + _REST
_QWEN2_SPLIT = _LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")
_LOWER, _UPPER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]", r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN_SPLIT = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    rf"|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*{_REST}"
)
_ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_GPT4O_SPLIT = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_ENDING}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_ENDING}"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*{_REST}"
)
# GGUF's name of a pre-tokenizer → its expression;
# None for GPT-2's own, which ByteLevel includes. smollm also cuts between all digits.
_LLAMA3_NAMES = (
    "llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano",
)  # fmt: skip
_SPLITS = {
    **dict.fromkeys(("default", "gpt-2", "smollm", "phi-2", "exaone4", "gigachat", "a.x-4.0", "mellum"), None),
    **dict.fromkeys((*_LLAMA3_NAMES, "smaug-bpe", "dbrx"), _LLAMA3_SPLIT),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez", "kormo", "f2llmv2"), _QWEN2_SPLIT),
    "tekken": _TEKKEN_SPLIT,
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2"), _GPT4O_SPLIT),
}
# These encode a word that is a token as that token, and begin a text with a special token unless a file disables it.
_WHOLE_WORDS = frozenset({*_LLAMA3_NAMES, "tekken"})
# llama.cpp's ids for a sentencepiece vocabulary that names none.
_SENTENCEPIECE_IDS = {"bos": 1, "eos": 2}
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4


def gguf_tokenizer(path: Path) -> Tokenizer:
    """Raises UnsupportedTokenizer, InvalidGguf or OSError; KeyError, IndexError or TypeError if it is incomplete."""
    metadata = read_metadata(path)
    kind = _kind(metadata)
    tokens, types = _vocabulary(metadata, kind)

    def token(name: str) -> str | None:
        """None for an id beyond the vocabulary, too."""
        fallback = _SENTENCEPIECE_IDS.get(name) if kind == "sentencepiece" else None
        id = metadata.get(f"tokenizer.ggml.{name}_token_id", fallback)
        return tokens[id] if isinstance(id, int) and 0 <= id < len(tokens) else None

    ends = {end for name in ("eos", "eot", "eom") if (end := token(name)) is not None}
    bos, eos = token("bos"), token("eos")
    # Some converters mark these as ordinary tokens; text must not be able to spell them all the same.
    control = ends | ({bos} if bos is not None else set())
    control |= {text for text, type in zip(tokens, types, strict=True) if type in (_CONTROL, _UNKNOWN)}
    defined = {text for text, type in zip(tokens, types, strict=True) if type == _USER_DEFINED} - control
    backend = (_sentencepiece if kind == "sentencepiece" else _byte_level_bpe)(metadata, tokens, types)
    backend.add_special_tokens([_added(metadata, text, special=True) for text in tokens if text in control])
    backend.add_tokens([_added(metadata, text, special=False) for text in tokens if text in defined])
    if metadata.get("tokenizer.ggml.add_eos_token") and eos is not None:
        backend.post_processor = processors.TemplateProcessing(
            single=["$A", eos], special_tokens=[(eos, backend.token_to_id(eos))]
        )
    begins = kind == "sentencepiece" or metadata.get("tokenizer.ggml.pre") in _WHOLE_WORDS
    return Tokenizer(
        backend,
        kind=kind,
        bos_token=bos,
        eos_token=eos,
        eos_token_ids=ids_of(backend, ends | (control & END_OF_ANSWER)),
        add_bos=metadata.get("tokenizer.ggml.add_bos_token", begins),
        chat_template=metadata.get("tokenizer.chat_template"),
    )


def _kind(metadata: Mapping[str, Any]) -> PieceKind:
    name = metadata.get("tokenizer.ggml.model")
    if name == "gpt2":
        return "byte_level"
    if name == "llama":
        return "sentencepiece"
    raise UnsupportedTokenizer(
        f"a GGUF file with tokenizer kind {name!r} is not supported; gpt2 (byte-level BPE) and llama (sentencepiece's"
        " BPE) are: use the model's Hugging Face folder, which has a tokenizer.json"
    )


def _vocabulary(metadata: Mapping[str, Any], kind: PieceKind) -> tuple[list[str], list[int]]:
    """The tokens and their types. ▁ is how sentencepiece spells a space, in tokens that stand for themselves too."""
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    types: list[int] = metadata.get("tokenizer.ggml.token_type") or [_NORMAL] * len(tokens)
    if len(types) != len(tokens):
        raise UnsupportedTokenizer(f"the GGUF file has {len(tokens)} tokens, but types of {len(types)}")
    if kind == "sentencepiece":
        plain = [token.replace("▁", " ") for token in tokens]
        tokens = [plain[id] if type == _USER_DEFINED else tokens[id] for id, type in enumerate(types)]
    return tokens, types


def _added(metadata: Mapping[str, Any], text: str, *, special: bool) -> AddedToken:
    """A token that is matched in texts before all others. Phi-3's include the white space after them."""
    phi3 = metadata.get("general.architecture") == "phi3" and metadata["tokenizer.ggml.model"] == "llama"
    strips = phi3 and text not in ("<unk>", "<s>", "<|endoftext|>")
    return AddedToken(text, normalized=False, special=special, rstrip=strips)


# ── byte-level BPE ────────────────────────────────────────────────────────────────────────────────────


def _byte_level_bpe(metadata: Mapping[str, Any], tokens: list[str], types: Sequence[int]) -> tokenizers.Tokenizer:
    name = metadata.get("tokenizer.ggml.pre", "default")
    if name not in _SPLITS:
        raise UnsupportedTokenizer(f"pre-tokenizer {name!r} is not supported; these are: {', '.join(_SPLITS)}")
    # A merge's two sides are divided by the one space that is not its first character.
    pairs = [merge.split(" ", 1) for merge in metadata["tokenizer.ggml.merges"]]
    vocab = {t: i for i, t in enumerate(tokens)}
    # A merge of or to what is no token never happens.
    merges = [(pair[0], pair[1]) for pair in pairs if len(pair) == 2 and {*pair, "".join(pair)} <= vocab.keys()]
    model = models.BPE(vocab=vocab, merges=merges, ignore_merges=name in _WHOLE_WORDS)
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


# ── sentencepiece ─────────────────────────────────────────────────────────────────────────────────────


def _sentencepiece(metadata: Mapping[str, Any], tokens: list[str], types: Sequence[int]) -> tokenizers.Tokenizer:
    """Spaces become ▁, with one more in front unless the file disables it; unknown text becomes byte tokens."""
    if metadata.get("tokenizer.ggml.precompiled_charsmap"):
        raise UnsupportedTokenizer(
            "a GGUF file whose tokenizer normalizes texts (precompiled_charsmap) is not supported:"
            " use the model's Hugging Face folder, which has a tokenizer.json"
        )
    scores: Sequence[float] = metadata["tokenizer.ggml.scores"]
    if len(scores) != len(tokens):
        raise UnsupportedTokenizer(f"the GGUF file has {len(tokens)} tokens, but scores of {len(scores)}")
    unknown = tokens[metadata.get("tokenizer.ggml.unknown_token_id", 0)]
    model = models.BPE(
        vocab={t: i for i, t in enumerate(tokens)},
        merges=_merges(tokens, scores, types),
        unk_token=unknown,
        fuse_unk=True,
        byte_fallback=True,
    )
    backend = tokenizers.Tokenizer(model)
    steps: list[normalizers.Normalizer] = [normalizers.Replace(" ", "▁")]
    if metadata.get("tokenizer.ggml.add_space_prefix", True):
        steps.insert(0, normalizers.Prepend("▁"))
    backend.normalizer = normalizers.Sequence(steps)
    return backend


def _merges(tokens: list[str], scores: Sequence[float], types: Sequence[int]) -> list[tuple[str, str]]:
    """Each way to put an ordinary piece together from two, the best piece first, in the order of sentencepiece.

    Control tokens are excluded, so that no merge results in one.
    """
    ids = {token: id for id, token in enumerate(tokens) if types[id] == _NORMAL}
    ways: list[tuple[float, int, int, str, str]] = []
    for piece, id in ids.items():
        for cut in range(1, len(piece)):
            first, second = ids.get(piece[:cut]), ids.get(piece[cut:])
            if first is not None and second is not None:
                ways.append((-scores[id], first, second, piece[:cut], piece[cut:]))
    ways.sort()
    return [(first, second) for _, _, _, first, second in ways]


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of the model at `path`. Raises UnsupportedTokenizer, InvalidGguf or OSError."""
    try:
        return _from_folder(path) if path.is_dir() else gguf_tokenizer(path)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise UnsupportedTokenizer(f"the tokenizer of {path.name} is incomplete: {error!r}") from error


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
        eos_token_ids=ends | ids_of(backend, (special & END_OF_ANSWER) | ({eos} if eos is not None else set())),
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
