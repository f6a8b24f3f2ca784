"""OpenAI's Responses.

requests.py        requests
tools.py           tools as functions of a chat, and the names of their calls
input.py           the input as chat messages
conversation.py    those messages and their parts, in the order that chats require
answers.py         the Response that a chat's answer becomes, its items, and the fields that both have
events.py          a chat's answer as a Response, whole or as events
streamed_items.py  the items of a streamed Response
native.py          responses of servers with Responses, streamed or whole
own_thoughts.py    removes reasoning that no server of Responses has given
stored_items.py    items of stored responses and conversations
"""
