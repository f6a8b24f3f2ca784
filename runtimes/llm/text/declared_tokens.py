"""The tokens that the files beside tokenizer.json declare, in the way of transformers' `from_pretrained`.

tokenizer_config.json has the tokens by their roles, such as `eos_token`, and all added tokens. A folder without that
list has special_tokens_map.json and added_tokens.json instead.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken

from runtimes.llm.weights.generation_config import json_file

ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
_LISTS = ("extra_special_tokens", "additional_special_tokens")


def declare(backend: tokenizers.Tokenizer, folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Add the declared tokens to `backend`. Return the spellings of special tokens by their roles.

    `config` is tokenizer_config.json's object.
    """
    declared = dict(config)
    listed: Mapping[str, Any] = declared.get("added_tokens_decoder") or {}
    added = [_token(listed[id]) for id in sorted(listed, key=int)]
    if not listed:
        declared |= json_file(folder / "special_tokens_map.json")
    lists = [declared.get(name) or {} for name in _LISTS]
    more = [one for each in lists if isinstance(each, list) for one in each]
    named = {key: value for key, value in declared.items() if key.endswith("_token") and isinstance(value, str | dict)}
    named |= {key: value for each in lists if isinstance(each, dict) for key, value in each.items()}
    special = {_token(value).content for value in (*named.values(), *more)}
    if not listed:
        ids = json_file(folder / "added_tokens.json")
        texts = sorted(ids, key=lambda text: int(ids[text]))
        added = [AddedToken(text, special=text in special, normalized=text not in special) for text in texts]
    present = {token.content for token in backend.get_added_tokens_decoder().values()}
    written = {token.content for token in added}
    added += [_token(value) for value in (*named.values(), *more) if _token(value).content not in present | written]
    for token in added:
        if token.content not in present:
            token.special = token.special or token.content in special
            (backend.add_special_tokens if token.special else backend.add_tokens)([token])
    return {key: _token(value).content for key, value in named.items()}


def _token(value: str | Mapping[str, Any]) -> AddedToken:
    if isinstance(value, str):
        return AddedToken(value, special=True, normalized=False)
    flags = {name: value[name] for name in _FLAGS if isinstance(value.get(name), bool)}
    return AddedToken(value["content"], **flags)
