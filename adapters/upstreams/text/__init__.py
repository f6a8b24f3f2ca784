"""Adapters of servers that generate text from a prompt.

tgi.py              Text Generation Inference over its own API
triton_generate.py  text models on Triton, over its generate extension
prompts.py          the prompt of a request
chat_template.py    converts a conversation to a prompt
one_kind.py         servers that support chats only, or completions only
"""
