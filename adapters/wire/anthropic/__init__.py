"""Anthropic's Messages.

requests.py         decodes requests one level deep
message_request.py  the request of a message, and its payload
message_to_chat.py  a message request as a chat
cache_marks.py      the marks of caches in a message, as places in the chat
chat_to_message.py  a chat as a message request
chat_turns.py       a chat's turns as messages
blocks.py           content blocks, and their form in a chat
tools.py            tools and tool choice
call_ids.py         ids of tool calls in Anthropic's alphabet, and back
answers.py          whole answers, both ways; a chat's stream as a message's
stream_to_chat.py   a message's stream as a chat's
open_blocks.py      the blocks of a message, streamed or whole; a whole message as a stream
errors.py           errors, both ways
"""
