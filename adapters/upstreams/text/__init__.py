"""Servers that generate text from a prompt.

tgi.py              Text Generation Inference, by its own API
triton_generate.py  text models on Triton, by its generate extension
prompts.py          the prompt of a request
chat_template.py    converts a conversation to a prompt
text_stream.py      streams in which each piece is a response with one output
one_kind.py         servers with chats only, or completions only
"""
