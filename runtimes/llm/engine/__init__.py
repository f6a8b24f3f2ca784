"""The engine: it schedules sequences, runs batches and samples tokens.

async_engine.py      the engine's thread, and its interface for asyncio
core.py              a step: schedule, run, update; engine_config.py: options and statistics
scheduler.py         which sequences run in a step, and how many tokens of each; scheduler_config.py: its bounds
step_budget.py       how many prompt tokens a step holds; waits.py: how long a step may last for waiting prompts
outcomes.py          what a step's result does to one sequence
queue.py             sequences that wait; fairness.py: the tenants' shares; standing.py: a request's place among others
running.py           sequences that run
refusals.py          errors of sequences that the engine rejects or ends
sequence.py          the state of a sequence, and the data of a step
block_manager.py     pages of the KV cache, and the prefix cache
kv_sizing.py         how many pages there are; memory.py: how much memory there is
sampler.py           logits to tokens; logits_processors.py: bias, penalties, masks; truncation.py: top-k, top-p, min-p
sampling_params.py   how one sequence is sampled; bad_words.py: sequences of tokens that it may not contain
logprobs.py          log-probabilities of tokens
"""
