"""OpenAI's Responses.

requests.py        requests
input.py           the input as chat messages
chat_fields.py     other fields as fields of a chat
answers.py         a chat's answer as a Response
events.py          a chat's stream as a Response's
streamed_items.py  the items of a streamed Response
native.py          responses of servers with Responses
stored_items.py    items of stored responses and conversations
"""
