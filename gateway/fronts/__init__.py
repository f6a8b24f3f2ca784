"""The front doors: thin codecs over one core.

openai.py   `/v1/chat/completions`, `/v1/completions`, `/v1/models`
anthropic.py `/v1/messages`, `/v1/messages/count_tokens`
errors.py   an error as a response in the shape of each front (adapters/statuses.py: its status)
admin.py    `/livez`, `/readyz`, `/metrics`, `/admin/state`, on their own listener
"""
