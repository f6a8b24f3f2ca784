"""Google's Gemini.

generations.py      what each generation of models accepts, as data
chat_to_content.py  a chat as a request of `generateContent`
contents.py         a chat's messages as contents
parts.py            the parts of a message
tools.py            tools and tool choice
schemas.py          JSON Schema in the subset of older models
signatures.py       the signatures of thoughts, in every form in which clients carry them
answers.py          reads answers and their tokens
content_to_chat.py  an answer as a chat's, whole or streamed
errors.py           errors, both ways
"""
