"""`/tokenize` and `/detokenize`, as vLLM has them: the tokens that a prompt is, and the text that tokens are."""

import functools
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from adapters.errors import CallerError
from runtimes.llm.messages import MAX_MESSAGES, Message, check_continued, check_messages
from runtimes.llm.submission import LoadedModel, encode_chat, encode_within
from runtimes.llm.thinking_fields import Variables, check_variables
from runtimes.llm.tokenizer import Tokenizer
from runtimes.llm.tools import MAX_TOOLS, Tool

MAX_TOKENS = 1 << 18


class TokenizeBody(msgspec.Struct, forbid_unknown_fields=True):
    """A chat's messages, or the prompt of a completion. Without `add_special_tokens` a prompt does not begin as a
    text does; what a chat begins with is its template's to say. `return_token_strs` asks for the tokens' names too."""

    model: str | None = None
    messages: Annotated[list[Message], Meta(min_length=1, max_length=MAX_MESSAGES)] | None = None
    prompt: str | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = True
    return_token_strs: bool | None = None
    chat_template_kwargs: Variables | None = None
    tools: Annotated[list[Tool], Meta(max_length=MAX_TOOLS)] | None = None


class DetokenizeBody(msgspec.Struct, forbid_unknown_fields=True):
    """Tokens of the model. Its control tokens are told by name."""

    tokens: Annotated[list[Annotated[int, Meta(ge=0, le=2**32 - 1)]], Meta(max_length=MAX_TOKENS)]
    model: str | None = None


Body = TypeVar("Body", TokenizeBody, DetokenizeBody)
_tokenize = msgspec.json.Decoder(TokenizeBody)
_detokenize = msgspec.json.Decoder(DetokenizeBody)


def decode_tokenize(body: bytes) -> TokenizeBody:
    """Raises `CallerError`."""
    decoded = _decoded(_tokenize, body)
    if (decoded.messages is None) == (decoded.prompt is None):
        raise CallerError("Give either `messages` or `prompt`.", param="messages")
    check_messages(decoded.messages or [])
    if decoded.continue_final_message:
        check_continued(decoded.messages or [])
    return decoded


def decode_detokenize(body: bytes) -> DetokenizeBody:
    """Raises `CallerError`."""
    return _decoded(_detokenize, body)


def _decoded(decoder: "msgspec.json.Decoder[Body]", body: bytes) -> Body:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CallerError(f"The body is not valid: {error}.") from None


async def tokens_of(body: TokenizeBody, model: LoadedModel) -> list[int]:
    """As the model would be given them, also if they do not fit its context. Raises `CallerError`."""
    limit = max(MAX_TOKENS, model.engine.max_model_len)
    if body.prompt is not None:
        encode = functools.partial(
            model.tokenizer.encode, body.prompt, allow_special=True, add_bos=body.add_special_tokens
        )
        return await encode_within(model, encode, len(body.prompt), limit, "prompt")
    if model.chat_template is None:
        raise CallerError("This model has no chat template: give a `prompt`.", param="model")
    begun = body.continue_final_message
    tools = [tool.for_template() for tool in body.tools or ()]
    check_variables(body.chat_template_kwargs)
    answer, variables = body.add_generation_prompt and not begun, body.chat_template_kwargs or {}
    return await encode_chat(
        model, model.chat_template, body.messages or (), tools, limit, answer=answer, begun=begun, variables=variables
    )


def text_of(body: DetokenizeBody, tokenizer: Tokenizer) -> str:
    """The text that the tokens are. Raises `CallerError` for one that the model does not have."""
    names = tokenizer.names(body.tokens)
    for place, name in enumerate(names):
        if name is None:
            message = f"`tokens` has {body.tokens[place]}, which is no token of this model."
            raise CallerError(message, param=f"tokens[{place}]")
    return tokenizer.decode(body.tokens, special=True)
