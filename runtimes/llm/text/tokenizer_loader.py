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

from runtimes.llm.model.hugging_face import token_ids
from runtimes.llm.text.declared_tokens import ROLES, declare
from runtimes.llm.text.encoder_vocabularies import ends as ends_of_texts
from runtimes.llm.text.encoder_vocabularies import unigram, wordpiece, wordpiece_tokens
from runtimes.llm.text.tokenizer import PieceKind, Tokenizer, UnsupportedTokenizer, ids_of
from runtimes.llm.weights.generation_config import json_file
from runtimes.llm.weights.gguf_metadata import description, read_metadata

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
    **dict.fromkeys(("roberta-bpe", "modern-bert"), None),
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
_GGUF_ROLES = ("bos", "eos", "unknown", "seperator", "padding", "cls", "mask")  # as the format spells them


def gguf_tokenizer(path: Path) -> Tokenizer:
    """Raises UnsupportedTokenizer, InvalidGguf or OSError; KeyError, IndexError or TypeError if it is incomplete."""
    metadata = read_metadata(path)
    name, kind = _kind(metadata)
    tokens, types = _vocabulary(metadata, kind)

    def token(role: str) -> str | None:
        """None for an id beyond the vocabulary, too."""
        fallback = _SENTENCEPIECE_IDS.get(role) if kind == "sentencepiece" else None
        id = metadata.get(f"tokenizer.ggml.{role}_token_id", fallback)
        return tokens[id] if isinstance(id, int) and 0 <= id < len(tokens) else None

    ends = {end for role in ("eos", "eot", "eom") if (end := token(role)) is not None}
    named = {own: text for own, role in zip(ROLES, _GGUF_ROLES, strict=True) if (text := token(role)) is not None}
    # Some converters mark these as ordinary tokens; text must not be able to spell them all the same.
    control = ends | ({named["bos_token"]} if "bos_token" in named else set())
    control |= {text for text, type in zip(tokens, types, strict=True) if type in (_CONTROL, _UNKNOWN)}
    defined = {text for text, type in zip(tokens, types, strict=True) if type == _USER_DEFINED} - control
    backend = _BACKENDS[name](metadata, tokens, types)
    backend.add_special_tokens([_added(metadata, text, special=True) for text in tokens if text in control])
    backend.add_tokens([_added(metadata, text, special=False) for text in tokens if text in defined])
    encodes = name == "gpt2" and metadata.get("general.architecture") in ("bert", "modern-bert")
    if encodes:
        backend.post_processor = ends_of_texts(metadata, tokens)
    elif metadata.get("tokenizer.ggml.add_eos_token", name == "t5") and (eos := named.get("eos_token")) is not None:
        backend.post_processor = processors.TemplateProcessing(
            single=["$A", eos], special_tokens=[(eos, backend.token_to_id(eos))]
        )
    begins = name == "llama" or _begins_as_bert(metadata) or metadata.get("tokenizer.ggml.pre") in _WHOLE_WORDS
    return Tokenizer(
        backend,
        kind=kind,
        named=named,
        eos_token_ids=ids_of(backend, ends),
        # The template of an encoder has both ends.
        add_bos=kind != "wordpiece" and not encodes and metadata.get("tokenizer.ggml.add_bos_token", begins),
        chat_template=metadata.get("tokenizer.chat_template"),
        tool_template=metadata.get("tokenizer.chat_template.tool_use"),
    )


_KINDS: Mapping[str, PieceKind] = {
    "gpt2": "byte_level", "llama": "sentencepiece", "bert": "wordpiece", "t5": "sentencepiece",
}  # fmt: skip


def _kind(metadata: Mapping[str, Any]) -> tuple[str, PieceKind]:
    """The file's name of its kind of tokenizer, and how its pieces are spelled."""
    name = str(metadata.get("tokenizer.ggml.model"))
    if name not in _KINDS:
        raise UnsupportedTokenizer(
            f"a GGUF file with tokenizer kind {name!r} is not supported; gpt2 (byte-level BPE), llama (sentencepiece's"
            " BPE), t5 (its unigrams) and bert (WordPiece) are: use the model's Hugging Face folder, which has a"
            " tokenizer.json"
        )
    return name, _KINDS[name]


def _begins_as_bert(metadata: Mapping[str, Any]) -> bool:
    """Whether it is an XLM-RoBERTa, whose texts begin with a token, unlike T5's."""
    return metadata.get("tokenizer.ggml.model") == "t5" and metadata.get("general.architecture") == "bert"


def _vocabulary(metadata: Mapping[str, Any], kind: PieceKind) -> tuple[list[str], list[int]]:
    """The tokens and their types. ▁ is how sentencepiece spells a space, in tokens that stand for themselves too."""
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    types: list[int] = metadata.get("tokenizer.ggml.token_type") or [_NORMAL] * len(tokens)
    if len(types) != len(tokens):
        raise UnsupportedTokenizer(f"the GGUF file has {len(tokens)} tokens, but types of {len(types)}")
    if kind == "wordpiece":
        return wordpiece_tokens(tokens, types), types
    if kind == "sentencepiece":
        plain = [token.replace("▁", " ") for token in tokens]
        tokens = [plain[id] if type == _USER_DEFINED else tokens[id] for id, type in enumerate(types)]
    return tokens, types


def _added(metadata: Mapping[str, Any], text: str, *, special: bool) -> AddedToken:
    """A token that is matched in texts before all others. Phi-3's include the white space after them."""
    phi3 = metadata.get("general.architecture") == "phi3" and metadata["tokenizer.ggml.model"] == "llama"
    strips = phi3 and text not in ("<unk>", "<s>", "<|endoftext|>")
    # The gap that RoBERTa and its kin fill includes the space before it.
    return AddedToken(text, normalized=False, special=special, lstrip=text == "<mask>", rstrip=strips)


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
    if name == "modern-bert":
        backend.normalizer = normalizers.NFC()
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


_BACKENDS = {"gpt2": _byte_level_bpe, "llama": _sentencepiece, "bert": wordpiece, "t5": unigram}


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of the model at `path`. Raises UnsupportedTokenizer, InvalidGguf or OSError."""
    try:
        return _from_folder(path) if path.is_dir() else gguf_tokenizer(path)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise UnsupportedTokenizer(f"the tokenizer of {path.name} is incomplete: {error!r}") from error


# ── Hugging Face ──────────────────────────────────────────────────────────────────────────────────────


def _from_folder(folder: Path) -> Tokenizer:
    backend = _backend(folder)
    config = json_file(folder / "tokenizer_config.json")
    named = declare(backend, folder, config)
    bos, eos = named.get("bos_token"), named.get("eos_token")
    special = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
    declared = token_ids(json_file(folder / "generation_config.json").get("eos_token_id"))
    leads = backend.encode("", add_special_tokens=True).ids[:1]
    templates = _templates(folder, config)
    return Tokenizer(
        backend,
        kind=_piece_kind(backend),
        named=named,
        eos_token_ids=declared | ids_of(backend, [] if eos is None else [eos]),
        add_bos=bos in special and leads == [backend.token_to_id(bos)],
        chat_template=templates.get("default"),
        tool_template=templates.get("tool_use"),
    )


def _backend(folder: Path) -> tokenizers.Tokenizer:
    file = folder / "tokenizer.json"
    if not file.exists():
        raise UnsupportedTokenizer(f"{folder.name or folder} has no tokenizer.json: {_advice(folder)}")
    try:
        text = file.read_text("utf-8-sig")
        return tokenizers.Tokenizer.from_str(text)
    except OSError:
        raise
    except Exception as error:  # the library raises nothing more precise
        reason = f"it {description(file)}" if not file.read_bytes()[:64].lstrip().startswith(b"{") else error
        raise UnsupportedTokenizer(f"tokenizer.json cannot be read: {reason}") from None


def _advice(folder: Path) -> str:
    return elsewhere(folder) or (
        "convert its tokenizer with `pip install transformers sentencepiece tiktoken protobuf` and"
        " `transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(folder)`"
    )


def elsewhere(folder: Path) -> str | None:
    """Where the model is that a folder seems to contain; None if nothing there looks like one."""
    names = sorted(file.name for file in folder.iterdir())
    if files := [name for name in names if name.endswith(".gguf")]:
        return f"name the GGUF file, {folder / files[0]}"
    if "snapshots" in names and (snapshots := sorted((folder / "snapshots").iterdir())):
        return f"name the folder of a revision, {snapshots[-1]}"
    parts = [folder / name for name in names if (folder / name / "config.json").exists()]
    return f"name the folder that has it, {parts[0]}" if parts else None


def _piece_kind(backend: tokenizers.Tokenizer) -> PieceKind:
    decoder = json.loads(backend.to_str())["decoder"] or {}
    kinds = {decoder.get("type"), *(part["type"] for part in decoder.get("decoders", []))}
    if "ByteLevel" in kinds:
        return "byte_level"
    if kinds & {"ByteFallback", "Metaspace"}:
        return "sentencepiece"
    if "WordPiece" in kinds:
        return "wordpiece"
    name = f"decodes by {decoder['type']}" if decoder else "has no decoder"
    raise UnsupportedTokenizer(f"tokenizer.json {name}; ByteLevel, ByteFallback, Metaspace and WordPiece are supported")


def _templates(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """The chat templates by their names; the usual one is `default`."""
    # chat_template.json is the processor's, of models that also see, and takes precedence over the tokenizer's.
    given = json_file(folder / "chat_template.json").get("chat_template") or config.get("chat_template")
    if isinstance(given, list):  # several by name: [{"name": …, "template": …}]
        templates = {entry["name"]: entry["template"] for entry in given}
    else:
        templates = {} if given is None else {"default": given}
    if not all(isinstance(template, str) for template in templates.values()):
        raise UnsupportedTokenizer("the chat_template of the model's JSON files is not a text")
    file = folder / "chat_template.jinja"
    if file.exists():
        templates = {"default": file.read_text("utf-8-sig")}
    for more in sorted(folder.glob("additional_chat_templates/*.jinja")):
        templates[more.stem] = more.read_text("utf-8-sig")
    return templates
