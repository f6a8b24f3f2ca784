"""Constraints on the text of an answer: grammars as masks over the next token.

constraint.py        grammars compiled for one model, and an answer's state in one, perhaps after a mark in free text
json_schema.py       JSON schemas as grammars, with numbers that llguidance would round
tagged_rules.py      the grammar of a call between tags
build.py             llguidance's matcher of a grammar
sandbox.py           compiles a grammar first in a process with limits, tenant by tenant; worker.py: that process
think_rules.py       the budget of a thought, and rules that begin after it
"""
