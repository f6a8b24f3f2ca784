"""Codecs of prompts and generated text.

prompt_request.py      a chat or completion for a prompt server
chat_translation.py    chats as completions, and completions as chats
bounded_jinja.py       a sandbox for templates that bounds time and memory
bounded_operations.py  its budget, and checks of operations whose results may be large
chat_jinja.py          the Jinja of chat templates, and the messages that they get
step_template.py       templates of pipeline steps
tgi.py                 Text Generation Inference's own API
triton.py              inputs and outputs of text models on Triton
generated_text.py      generated text as OpenAI's response, up to a stop text
"""
