"""`/tokenize` and `/detokenize`, as vLLM has them: the tokens that a prompt is, and the text that tokens are."""

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from adapters.errors import CallerError
from runtimes.llm.chat_template import ChatTemplate
from runtimes.llm.messages import Message, check_messages
from runtimes.llm.tokenizer import Tokenizer
from runtimes.llm.tools import MAX_TOOLS, Tool

MAX_TOKENS = 1 << 18


class TokenizeBody(msgspec.Struct, forbid_unknown_fields=True):
    """A chat's messages, or the prompt of a completion. Without `add_special_tokens` a prompt does not begin as a
    text does; what a chat begins with is its template's to say. `return_token_strs` asks for the tokens' names too."""

    model: str
    messages: Annotated[list[Message], Meta(min_length=1)] | None = None
    prompt: str | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = True
    return_token_strs: bool | None = None
    tools: Annotated[list[Tool], Meta(max_length=MAX_TOOLS)] | None = None

    @property
    def length(self) -> int:
        """Characters."""
        return len(self.prompt or "") + sum([message.length for message in self.messages or ()])


class DetokenizeBody(msgspec.Struct, forbid_unknown_fields=True):
    """Tokens of the model. Its control tokens are told by name."""

    model: str
    tokens: Annotated[list[Annotated[int, Meta(ge=0, le=2**32 - 1)]], Meta(max_length=MAX_TOKENS)]


Body = TypeVar("Body", TokenizeBody, DetokenizeBody)
_tokenize = msgspec.json.Decoder(TokenizeBody)
_detokenize = msgspec.json.Decoder(DetokenizeBody)


def decode_tokenize(body: bytes) -> TokenizeBody:
    """Raises `CallerError`."""
    decoded = _decoded(_tokenize, body)
    if (decoded.messages is None) == (decoded.prompt is None):
        raise CallerError("Give either `messages` or `prompt`.", param="messages")
    check_messages(decoded.messages or [])
    if decoded.continue_final_message and (not decoded.messages or decoded.messages[-1].role != "assistant"):
        raise CallerError("`continue_final_message` needs a last message of the assistant's.", param="messages")
    return decoded


def decode_detokenize(body: bytes) -> DetokenizeBody:
    """Raises `CallerError`."""
    return _decoded(_detokenize, body)


def _decoded(decoder: "msgspec.json.Decoder[Body]", body: bytes) -> Body:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CallerError(f"The body is not valid: {error}.") from None


def tokens_of(body: TokenizeBody, tokenizer: Tokenizer, template: ChatTemplate | None) -> list[int]:
    """As the model would be given them. Raises `CallerError`."""
    if body.prompt is not None:
        return tokenizer.encode(body.prompt, allow_special=True, add_bos=body.add_special_tokens)
    if template is None:
        raise CallerError("This model has no chat template: give a `prompt`.", param="model")
    messages = [message.for_template() for message in body.messages or ()]
    begun = body.continue_final_message
    tools = [tool.for_template() for tool in body.tools or ()]
    return template.encode(messages, tools=tools, answer=body.add_generation_prompt and not begun, begun=begun)


def text_of(body: DetokenizeBody, tokenizer: Tokenizer) -> str:
    """The text that the tokens are. Raises `CallerError` for one that the model does not have."""
    names = tokenizer.names(body.tokens)
    for place, name in enumerate(names):
        if name is None:
            message = f"`tokens` has {body.tokens[place]}, which is no token of this model."
            raise CallerError(message, param=f"tokens[{place}]")
    return tokenizer.decode(body.tokens, special=True)
