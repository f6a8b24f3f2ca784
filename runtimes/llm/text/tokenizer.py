"""Text to token ids and back.

The ids come from the `tokenizers` library. The reverse uses a table of bytes by token id, because a stream needs the
bytes: one token may contain an incomplete character.

Long texts are cut into slices that are encoded one after another. A slice ends after a letter or a digit that a space
or a new line follows: no pre-tokenizer joins the two, so the ids of the slices are the ids of the whole text.
`cuts_exactly` verifies that for a tokenizer at load.
"""

import codecs
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Literal

import tokenizers

SLICE = 16 * 1024
"""Characters of a slice, if its text can be cut there."""
LONGEST = 64 * 1024
"""The longest slice in characters: a text without a place to cut is cut here, through any token."""
_PLACE = re.compile(r"[^\W_](?=[ \n])")
_SAMPLE = "Some words, 12 and\nmore  of  it\n\n  x = 3 ; Ünï \t cödé 中文 字 it's a 7.5 %  end\n"


def slices(text: str, *, cut: bool = True) -> Iterator[str]:
    """The parts of `text` in their order; without `cut` only parts over LONGEST are cut."""
    start = 0
    while len(text) - start > (SLICE if cut else LONGEST):
        place = _PLACE.search(text, start + SLICE, start + LONGEST) if cut else None
        end = start + LONGEST if place is None else place.end()
        yield text[start:end]
        start = end
    if start < len(text) or not text:
        yield text[start:]


def cuts_exactly(encode: Callable[[str], list[int]]) -> bool:
    """Whether a sample has the same ids in two slices, wherever it is cut."""
    whole = encode(_SAMPLE)
    places = [place.end() for place in _PLACE.finditer(_SAMPLE)]
    return all(encode(_SAMPLE[:place]) + encode(_SAMPLE[place:]) == whole for place in places)


class _Trie(dict[str, "_Trie"]):
    """Characters and their possible successors; a token ends at an empty one."""


class SpecialSpellings:
    """The spellings of one vocabulary's control tokens.

    A text that is cut after the first character of each spelling, with each part encoded separately, has no control
    token. The pattern is a trie: a text costs a few steps a character, however many control tokens there are.
    """

    def __init__(self, tokens: Iterable[str]) -> None:
        spellings = [token for token in tokens if token]
        self._longest = max(map(len, spellings), default=0)
        self._begun = {token[:end] for token in spellings for end in range(1, len(token))}
        self._whole = re.compile(f"(?={_pattern(_trie(spellings))}).", re.DOTALL) if spellings else None
        firsts = "".join(sorted({re.escape(token[0]) for token in spellings}))
        self.beginnings = re.compile(f"[{firsts}]" if firsts else r"(?!)")
        """The characters with which a spelling may begin."""

    def cut(self, text: str, *, open_end: bool = False, except_at: Container[int] = ()) -> list[str]:
        """The parts of `text`, none of which spells a control token, except for those that begin `except_at`.

        With an `open_end` more text follows, so the beginning of a spelling at the end of `text` is cut too.
        """
        if self._whole is None:
            return [text]
        places = {match.end() for match in self._whole.finditer(text) if match.start() not in except_at}
        if open_end:
            places |= self._begun_at_end(text)
        ends = sorted(places)
        return [text[start:end] for start, end in zip([0, *ends], [*ends, len(text)], strict=True)]

    def _begun_at_end(self, text: str) -> set[int]:
        """Offsets after the first characters of spellings that are incomplete at the end, without white space."""
        end = len(text.rstrip())
        starts = range(max(0, end - self._longest), end)
        return {start + 1 for start in starts if text[start:end] in self._begun}


def _trie(tokens: Iterable[str]) -> _Trie:
    root = _Trie()
    for token in tokens:
        node = root
        for character in token:
            node = node.setdefault(character, _Trie())
        node[""] = _Trie()
    return root


def _pattern(node: _Trie) -> str:
    if "" in node:  # this spelling matches before a longer one with the same beginning
        return ""
    branches = [re.escape(character) + _pattern(child) for character, child in node.items()]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})" if branches else ""


PieceKind = Literal["byte_level", "sentencepiece", "wordpiece"]
# Control tokens that end an answer even if no file declares them: an instruct model may end its turn with one and
# declare another. llama.cpp treats the same names so (llama-vocab.cpp, special_eog_ids).
END_OF_ANSWER = frozenset(
    {"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|end_of_text|>", "<|end|>", "<end_of_turn>", "</s>"}
)

_MARK = re.compile(r"<\|.+\|>", re.DOTALL)
"""Added tokens of this form structure a conversation: a template may put them together from parts."""
_TAG = re.compile(r"<\S(?:.*\S)?>|\[\S(?:.*\S)?\]", re.DOTALL)
"""Added tokens of this form structure a conversation if a template has them. Others, such as empty lines, are text."""
_WITHIN = ("a", " a")


class UnsupportedTokenizer(ValueError):
    """The model's tokenizer is of a kind that this runtime cannot reproduce exactly."""


class TooManyTokens(ValueError):
    """A text has more tokens than the limit; the rest of it was not encoded."""


class Tokenizer:
    """One model's tokenizer. All methods may be called from any thread; the GIL is released while texts are encoded.

    `pieces[id]` are the bytes that a token adds to a text: none for a special token. `special_tokens` are those by
    their spelling. Control tokens are the special ones, and other added tokens in the form of a mark that the chat
    template writes: in text they are recognized only if the caller allows it.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        kind: PieceKind,
        named: Mapping[str, str],
        eos_token_ids: frozenset[int],
        add_bos: bool,
        chat_template: str | None,
        tool_template: str | None = None,
    ) -> None:
        """`named` are special tokens by their roles, such as `eos_token`. A `tool_template` is for chats with tools."""
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = False  # never set again: other threads may encode at that moment
        self._backend = backend
        added = backend.get_added_tokens_decoder()
        self.special_tokens = {token.content: id for id, token in added.items() if token.special}
        self.special_spellings = {id: spelling.encode() for spelling, id in self.special_tokens.items()}
        # Of a sentencepiece vocabulary even whole spellings have ▁ for a space: Gemma has such tokens.
        spelled = _sentencepiece_piece if kind == "sentencepiece" else str.encode
        literal = {id: b"" if token.special else spelled(token.content) for id, token in added.items()}
        self.pieces = _pieces(backend.get_vocab(with_added_tokens=True), kind) | literal
        self.longest_piece = max(map(len, (*self.pieces.values(), *self.special_spellings.values())), default=1)
        """Bytes of the longest piece: a text of n bytes has at least n / longest_piece tokens."""
        templates = f"{chat_template} {tool_template}"
        written = {
            token.content: id for id, token in added.items()
            if not token.special
            and (_MARK.fullmatch(token.content) or (_TAG.fullmatch(token.content) and token.content in templates))
        }  # fmt: skip
        control = self.special_tokens | written
        self.spellings = SpecialSpellings(control)
        self._cuts = cuts_exactly(self._encode)
        self._lead, self._lead_ids = self._leading()
        self.named = named
        self.eos_token_ids = eos_token_ids | {control[end] for end in END_OF_ANSWER & control.keys()}
        self._bos_ids = [self.special_tokens[named["bos_token"]]] if add_bos and "bos_token" in named else []
        self._closing = _closing(backend)
        self.chat_template = chat_template
        """The model's own Jinja template, or None."""
        self.tool_template = tool_template

    def limit_to(self, vocab_size: int) -> list[int]:
        """Drop the end tokens for which the model has no row, and return them: it can never generate these."""
        beyond = sorted(id for id in self.eos_token_ids if id >= vocab_size)
        self.eos_token_ids -= {*beyond}
        return beyond

    def encode(
        self,
        text: str,
        *,
        allow_special: bool = False,
        add_bos: bool = False,
        continues: bool = False,
        limit: int | None = None,
    ) -> list[int]:
        """The ids of `text`. Raises TooManyTokens for more than `limit`, without encoding the whole text.

        A control token's spelling in `text` is plain text unless `allow_special`. `add_bos` adds the beginning-of-text
        token in front, if the model has one. A text that `continues` another one has no space in front that a
        tokenizer puts before whole texts.
        """
        leading = self._bos_ids if add_bos else []
        parts = [text] if allow_special else self.spellings.cut(text)
        return self.encode_parts(parts, limit, leading, continues=continues)

    def encode_parts(
        self, parts: Iterable[str], limit: int | None, leading: Iterable[int] = (), *, continues: bool = False
    ) -> list[int]:
        """The ids of one text in parts, each encoded separately, after the `leading` ids. Spellings of control tokens
        count. Raises TooManyTokens as `encode` does."""
        ids = [*leading]
        for encoded in self._encoded(parts, continues):
            ids += encoded
            if limit is not None and len(ids) > limit:
                raise TooManyTokens(f"more than {limit} tokens")
        return ids

    def first_ids(self, text: str, limit: int) -> list[int]:
        """The first `limit` ids of a text that continues another one, without encoding the whole text."""
        return list(islice(chain.from_iterable(self._encoded(self.spellings.cut(text), True)), limit))

    def _encoded(self, parts: Iterable[str], continues: bool) -> Iterator[list[int]]:
        for part in parts:
            for piece in slices(part, cut=self._cuts):
                yield self._continued(piece) if continues else self._encode(piece)
                continues = True

    def _continued(self, text: str) -> list[int]:
        """The ids of a text within another one."""
        if not self._lead:
            return self._encode(text)
        ids, size = self._encode(self._lead + text), len(self._lead_ids)
        return ids[size:] if ids[:size] == self._lead_ids else self._encode(text)

    def _leading(self) -> tuple[str, list[int]]:
        """A text, and its ids, after which another text is encoded as within one. Empty if texts have no prefix."""
        for lead in ("", "\x02", "\n"):
            begin = self._encode(lead)
            texts = [(sample, self._encode(lead + sample)) for sample in _WITHIN]
            if all(
                ids[: len(begin)] == begin and b"".join(map(self.piece, ids[len(begin) :])) == sample.encode()
                for sample, ids in texts
            ):
                return lead, begin
        return "", []

    def _encode(self, text: str) -> list[int]:
        # Of a batch of one, because `encode` of the library holds the GIL.
        ids: list[int] = self._backend.encode_batch_fast([text], add_special_tokens=False)[0].ids
        return ids

    def encode_whole(self, text: str, limit: int | None = None) -> list[int]:
        """The ids of a whole text, between the control tokens that the model expects around it.

        Spellings of control tokens count. Tokens beyond `limit` are removed before the tokens of the end.
        """
        ids: list[int] = self._backend.encode_batch_fast([text], add_special_tokens=True)[0].ids
        if ids[: len(self._bos_ids)] != self._bos_ids:
            ids = self._bos_ids + ids
        if limit is None or len(ids) <= limit:
            return ids
        begin = max(limit - self._closing, 0)
        return ids[:begin] + ids[len(ids) - (limit - begin) :]

    def plain(self, text: str) -> tokenizers.Encoding:
        """A text without the control tokens around it, for `joined`."""
        encoding: tokenizers.Encoding = self._backend.encode_batch_fast([text], add_special_tokens=False)[0]
        return encoding

    def joined(self, first: tokenizers.Encoding, second: tokenizers.Encoding) -> tokenizers.Encoding:
        """A pair between the control tokens that the model expects around both texts."""
        return self._backend.post_process(first, second, add_special_tokens=True)

    def shortened(self, text: str, limit: int) -> str:
        """The beginning of `text` that its first `limit` tokens stand for."""
        encoding = self._backend.encode_batch([text], add_special_tokens=False)[0]
        if len(encoding.ids) <= limit:
            return text
        return text[: encoding.offsets[limit - 1][1]]

    @property
    def added_to_pairs(self) -> int:
        """The number of control tokens of a pair."""
        return self._backend.num_special_tokens_to_add(is_pair=True)

    def token_id(self, spelling: str) -> int | None:
        """The id of a token of exactly that spelling."""
        return self._backend.token_to_id(spelling)

    def decode(self, token_ids: Iterable[int], *, special: bool = False) -> str:
        """The text of the ids within a longer text; invalid UTF-8 becomes U+FFFD. Control tokens are omitted, or with
        `special` spelled.
        """
        pieces = [
            self.piece(token_id) or (self.special_spellings.get(token_id, b"") if special else b"")
            for token_id in token_ids
        ]
        return b"".join(pieces).decode("utf-8", "replace")

    def names(self, token_ids: Iterable[int]) -> list[str | None]:
        """The token's name in the vocabulary, which encodes bytes in its own way. None for an id without a token."""
        return [self._backend.id_to_token(token_id) for token_id in token_ids]

    def piece(self, token_id: int) -> bytes:
        """The bytes of one token; none for an id without a token (vocabularies are padded)."""
        return self.pieces.get(token_id, b"")


def ids_of(backend: tokenizers.Tokenizer, tokens: Iterable[str]) -> frozenset[int]:
    """The ids of those `tokens` that exist."""
    return frozenset(id for token in tokens if (id := backend.token_to_id(token)) is not None)


def _closing(backend: tokenizers.Tokenizer) -> int:
    """The number of control tokens that end a whole text."""
    plain = backend.encode("a", add_special_tokens=False).ids
    whole = backend.encode("a", add_special_tokens=True).ids
    starts = [at for at in range(len(whole) - len(plain) + 1) if whole[at : at + len(plain)] == plain]
    return len(whole) - len(plain) - starts[0] if plain and starts else 0


def _pieces(vocab: Mapping[str, int], kind: PieceKind) -> dict[int, bytes]:
    if kind == "wordpiece":
        return {
            id: token[2:].encode() if token.startswith("##") else f" {token}".encode() for token, id in vocab.items()
        }
    if kind == "byte_level":
        alphabet = byte_level_alphabet()
        return {id: _byte_level_piece(token, alphabet) for token, id in vocab.items()}
    return {id: _sentencepiece_piece(token) for token, id in vocab.items()}


def _byte_level_piece(token: str, alphabet: Mapping[str, int]) -> bytes:
    try:
        return bytes([alphabet[character] for character in token])
    except KeyError:  # a token that was never spelled in the alphabet stands for itself
        return token.encode()


def _sentencepiece_piece(token: str) -> bytes:
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return bytes([int(token[3:5], 16)])
    return token.replace("▁", " ").encode()


def byte_level_alphabet() -> dict[str, int]:
    """The byte that each character of a byte-level vocabulary stands for.

    GPT-2's table (https://github.com/openai/gpt-2/blob/master/src/encoder.py): printable bytes are themselves,
    the others, in order, are the characters from 256 on.
    """
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


class Detokenizer:
    """Converts one answer's tokens to text. The results of `push` and `flush` together equal `decode` of all tokens."""

    def __init__(self, tokenizer: Tokenizer, shown: Mapping[int, bytes] | None = None) -> None:
        """`shown` control tokens are spelled in the text."""
        self._tokenizer = tokenizer
        self._shown = shown or {}
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """The text that is complete with this token; empty while a character is open."""
        return self._decoder.decode(self._tokenizer.piece(token_id) or self._shown.get(token_id, b""))

    def flush(self) -> str:
        """The end: U+FFFD if a character was left open."""
        return self._decoder.decode(b"", final=True)


def overlap(text: str, stop: str) -> int:
    """The length of the longest end of `text` that is a beginning of `stop`."""
    start = max(0, len(text) - len(stop) + 1)
    while (start := text.find(stop[0], start)) >= 0:
        if stop.startswith(text[start:]):
            return len(text) - start
        start += 1
    return 0
