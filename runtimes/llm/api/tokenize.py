"""`/tokenize` and `/detokenize`, as in vLLM: text to tokens, and tokens to text."""

import functools

from adapters.errors import CallerError
from runtimes.llm.api.submission import LoadedModel, encode_chat, encode_within, read_pictures
from runtimes.llm.api.text_bodies import MAX_TOKENS, DetokenizeBody, TokenizeBody
from runtimes.llm.api.thinking_fields import check_variables
from runtimes.llm.text.tokenizer import Tokenizer


async def tokens_of(body: TokenizeBody, model: LoadedModel) -> list[int]:
    """The tokens of a prompt, also if they do not fit the context. Raises `CallerError`."""
    limit = max(MAX_TOKENS, model.engine.max_model_len)
    if body.prompt is not None:
        encode = functools.partial(
            model.tokenizer.encode, body.prompt, allow_special=True, add_bos=body.add_special_tokens
        )
        return await encode_within(model, encode, len(body.prompt), limit, "prompt")
    template = model.template("give a `prompt`", tools=bool(body.tools))
    begun = body.continue_final_message
    tools = [tool.for_template() for tool in body.tools or ()]
    check_variables(body.chat_template_kwargs)
    answer, variables = body.add_generation_prompt and not begun, body.chat_template_kwargs or {}
    messages = body.messages or ()
    pictures = await read_pictures(model, messages)
    try:
        return await encode_chat(
            model, template, messages, tools, limit, pictures, answer=answer, begun=begun, variables=variables
        )
    finally:
        if pictures is not None:
            pictures.release()


def text_of(body: DetokenizeBody, tokenizer: Tokenizer) -> str:
    """The text of tokens. Raises `CallerError` for a token outside the vocabulary."""
    names = tokenizer.names(body.tokens)
    for place, name in enumerate(names):
        if name is None:
            message = f"`tokens` has {body.tokens[place]}, which is no token of this model."
            raise CallerError(message, param=f"tokens[{place}]")
    return tokenizer.decode(body.tokens, special=not body.skip_special_tokens)
