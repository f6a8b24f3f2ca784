"""Google's Gemini.

generations.py      what each generation of models accepts, as data
chat_to_content.py  a chat as a request of `generateContent`
contents.py         a chat's messages as contents
plain_turns.py      those of plain chats, in one loop
sent_messages.py    the messages, decoded
parts.py            the parts of a message
tools.py            tools and tool choice
schemas.py          JSON Schema in the subset of older models
signatures.py       the signatures of thoughts, in every form in which clients carry them
cache_points.py     where the cached beginning of a prompt may end
answers.py          reads answers and their tokens
content_to_chat.py  an answer as a chat's, whole or streamed
embeddings.py       embeddings
errors.py           errors, both ways
requests.py         decodes the requests of clients, encodes small answers
content_request.py  a client's request for contents, and its codec
native_to_chat.py   such a request as a chat
native_parts.py     the parts of its contents
native_config.py    its configuration, tools and schemas
carried.py          what other servers demand back, in the signatures of parts
chat_to_answer.py   a chat's answer as Gemini's, whole or streamed
"""
