"""OpenAI's API.

chat.py              chats and completions: requests, answers, events, errors
request_codec.py     the codec of requests, and their payload
chat_reader.py       a chat's answer, whole or streamed, for doors with another protocol
chat_calls.py        assembles its tool calls
embeddings.py        embeddings
passthrough.py       operations that are forwarded unchanged
model_field.py       the model's name in JSON objects and forms
model_list.py        lists of models
operation_fields.py  the fields of each operation
ignored_fields.py    fields that a model does not support
bounds.py            texts of other protocols within OpenAI's bounds
known_fields.py      decodes values with fields that nobody knows yet
kept_signatures.py   what a server demands back, in another protocol's opaque text
features.py          requested features, from undecoded fields
thinking.py          thinking options between APIs
history.py           the messages of a chat in the dialect of one server
dialects.py          differences of compatible servers, as data
translation.py       chats as completions, and completions as chats
transcript.py        the text of a stream so far, to continue it
continuation.py      a broken stream as a request for its rest
opening.py           chunks that precede a model's output
whole_stream.py      a whole answer as a stream
errors.py            error bodies in every shape of the family
refusals.py          the meaning of servers' refusals
"""
