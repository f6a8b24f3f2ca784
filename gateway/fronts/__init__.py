"""The front doors: thin codecs over one core.

openai.py   `/v1/chat/completions`, `/v1/completions`, `/v1/models`
anthropic.py `/v1/messages`, `/v1/messages/count_tokens`
errors.py   the one table from errors to statuses, and the headers that go with them
admin.py    `/livez`, `/readyz`, `/metrics`, `/admin/state`, on their own listener
"""
