"""OpenAI's API over the engine: requests in, responses and events out.

server.py            the routes; http_bodies.py: JSON bodies and streams; error_responses.py: errors as responses
requests.py          the bodies of chats and completions; request_decoding.py: bytes to checked bodies
messages.py          the turns of a conversation
sampling_fields.py   how tokens are chosen
tools.py             the functions that a model may call
answer_format.py     `response_format` and `structured_outputs` as grammars
thinking_fields.py   how a model thinks; thinking.py: the parsers and rules for one model
submission.py        from a request to its sequences
origin.py            the tenant, priority, deadline and cache salt of a request
choice.py            from tokens to the text of one answer
generation.py        the answers of one request, whole or as a stream
answers.py           writes answers in each API's shape; answer_bodies.py: the bodies
token_logprobs.py    log-probabilities in each API's shape
responses.py         `/v1/responses`
embeddings.py        `/v1/embeddings`; embedding_fields.py: its fields
tokenize.py          `/tokenize` and `/detokenize`; tokenize_fields.py: their fields
encoding_thread.py   encodes large texts off the event loop
metrics.py           the page of `/metrics`
"""
