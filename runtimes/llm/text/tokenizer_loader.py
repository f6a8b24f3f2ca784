"""A model's tokenizer from its files: a GGUF file's metadata (`gguf_tokenizer`), or a folder's tokenizer.json.

A tokenizer that cannot be reproduced exactly is refused: a tokenizer that is almost right makes a model almost right.
"""

import json
from pathlib import Path
from typing import Any

import tokenizers

from runtimes.llm.text.gguf_tokenizer import gguf_tokenizer
from runtimes.llm.text.tokenizer import END_OF_ANSWER, PieceKind, Tokenizer, UnsupportedTokenizer, ids_of


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
