"""OpenAI's API.

chat.py             chats and completions: requests, answers (also a whole one as a stream), events, errors
request_codec.py    the codec of requests, their payload, and the features that they use
chat_reader.py      a chat's answer, whole or streamed, for doors with another protocol; assembles its tool calls
embeddings.py       embeddings
ranking.py          rerank, score and classify; ranking_size.py: the size of forwarded ones
model_field.py      the model's name in JSON objects and forms; lists of models; operations that are forwarded unchanged
bounds.py           texts of other protocols within OpenAI's bounds
chat_tools.py       the tools of a chat, for translations into other protocols
known_fields.py     decodes values with fields that nobody knows yet
kept_signatures.py  what a server demands back, in another protocol's opaque text
history.py          the messages of a chat in the dialect of one server
dialects.py         differences of compatible servers, as data
providers.py        the dialects of hosted APIs
spelling.py         a chat's fields as one server spells them
thinking.py         the fields that control thinking, between Messages and chats
transcript.py       the text of a stream so far, and the request for the rest of a broken stream
"""
