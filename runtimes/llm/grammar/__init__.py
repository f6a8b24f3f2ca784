"""Constraints on the text of an answer: grammars as masks over the next token.

constraint.py        grammars compiled for one model, and an answer's state in one
json_schema.py       JSON schemas as grammars; schema_numbers.py: numbers that llguidance would round
build.py             llguidance's matcher of a grammar
sandbox.py           compiles a grammar first in a process with limits; worker.py: that process
tenant_slots.py      places for compilations, shared by tenants
after_mark.py        rules that begin after a mark in free text
think_rules.py       the budget of a thought, and rules that begin after it
"""
