"""`/tokenize`, as vLLM has it: the tokens that a prompt is, without an answer to it."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from adapters.errors import CallerError
from runtimes.llm.chat_template import ChatTemplate
from runtimes.llm.protocol import Message
from runtimes.llm.tokenizer import Tokenizer


class TokenizeBody(msgspec.Struct, forbid_unknown_fields=True):
    """A chat's messages, or the prompt of a completion."""

    model: str
    messages: Annotated[list[Message], Meta(min_length=1)] | None = None
    prompt: str | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: Literal[True] = True
    return_token_strs: Literal[False] | None = None
    tools: Annotated[list[Any], Meta(max_length=0)] | None = None

    @property
    def length(self) -> int:
        """Characters."""
        return len(self.prompt or "") + sum([len(message.text) for message in self.messages or ()])


_decode = msgspec.json.Decoder(TokenizeBody).decode


def decode_tokenize(body: bytes) -> TokenizeBody:
    """Raises `CallerError`."""
    try:
        decoded = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CallerError(f"The body is not valid: {error}.") from None
    if (decoded.messages is None) == (decoded.prompt is None):
        raise CallerError("Give either `messages` or `prompt`.", param="messages")
    if decoded.continue_final_message and (not decoded.messages or decoded.messages[-1].role != "assistant"):
        raise CallerError("`continue_final_message` needs a last message of the assistant's.", param="messages")
    return decoded


def tokens_of(body: TokenizeBody, tokenizer: Tokenizer, template: ChatTemplate | None) -> list[int]:
    """As the model would be given them. Raises `CallerError`."""
    if body.prompt is not None:
        return tokenizer.encode(body.prompt, allow_special=True, add_bos=True)
    if template is None:
        raise CallerError("This model has no chat template: give a `prompt`.", param="model")
    messages = [message.for_template() for message in body.messages or ()]
    begun = body.continue_final_message
    return template.encode(messages, answer=body.add_generation_prompt and not begun, begun=begun)
