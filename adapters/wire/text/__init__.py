"""Codecs of prompts and generated text.

prompt_request.py  a chat or completion for a prompt server
chat_messages.py   messages in the form of chat templates
bounded_jinja.py   a sandbox for templates that bounds time and memory
template_budget.py  the work that one rendering may do
bounded_operations.py  checks of operations whose results may be large
chat_jinja.py      the Jinja of chat templates
step_template.py   templates of pipeline steps
tgi.py             Text Generation Inference's own API
triton.py          inputs and outputs of text models on Triton
generated_text.py  generated text as OpenAI's response
stop_texts.py      stop texts in a stream
"""
