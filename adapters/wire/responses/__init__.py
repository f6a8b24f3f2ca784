"""OpenAI's Responses.

requests.py        requests
chat_fields.py     fields as those of a chat
tools.py           tools as functions of a chat, and the names of their calls
input.py           the input as chat messages
conversation.py    those messages in the order that chats require
parts.py           the parts of their contents
answers.py         the Response that a chat's answer becomes, and its items
events.py          a chat's answer as a Response, whole or as events
streamed_items.py  the items of a streamed Response
custom_input.py    the text of a custom tool's call, from a function's arguments
native.py          responses of servers with Responses
whole_response.py  a whole Response as a stream
stored_items.py    items of stored responses and conversations
"""
