"""OpenAI's API over the engine: requests in, responses and events out.

server.py            the routes; http_bodies.py: JSON bodies, streams and errors
requests.py          the bodies of chats and completions; request_decoding.py: bytes to checked bodies
client_fields.py     fields of other servers' clients; unknown_fields.py: those that no table has
messages.py          the turns of a conversation
sampling_fields.py   how tokens are chosen
tools.py             the functions that a model may call, and the grammar of their calls
thinking_fields.py   how a model thinks; thinking.py: the parsers and rules for one model
pictures.py          the pictures of chats
prediction.py        the text that a client expects in the answer
encoding_thread.py   where long texts and pictures are encoded
submission.py        from a request to its sequences: their standing, and their tokens
choice.py            from tokens to the text of one answer
generation.py        the answers of one request, whole or as a stream, and their spans
answers.py           writes answers in each API's shape
token_logprobs.py    log-probabilities in each API's shape
responses.py         `/v1/responses`
embeddings.py        `/v1/embeddings`
ranking.py           `/v1/rerank`, `/score` and `/classify`
tokenize.py          `/tokenize` and `/detokenize`; text_bodies.py: the bodies of these three
metrics.py           the page of `/metrics`
"""
