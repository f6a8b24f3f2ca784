"""The pure parts of pipelines: no I/O, no clock, bounded work. Their expressions are in `config.expressions`.

request_budget.py  the budget of one request
votes.py       votes over labels, decided as early as possible; the quorum of an ensemble
combine.py     mean, concatenation and votes of tensors
acceptance.py  properties of an LLM's answer that the conditions of a cascade read
agreement.py   agreement of several answers
window.py        the part of a text stream that a guard may release
judge.py         verdicts of a judging model, and the best of several answers
rerank.py        cosine similarity, and the candidates with the highest scores
"""
