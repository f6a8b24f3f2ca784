"""The engine: it schedules sequences, runs batches and samples tokens.

async_engine.py      the engine's thread, and its interface for asyncio
core.py              a step: schedule, run, update; engine_config.py: its options and statistics
scheduler.py         which sequences run in a step, and how many tokens of each
step_budget.py       the bounds of a step: its prompt tokens, and its time while prompts wait
speculation.py       how many tokens are proposed ahead; step_costs.py: how long steps take with them
ngram_index.py       proposals from the text itself
draft_model.py       proposals from a second model; drafts.py: for which sequences, and how many
results.py           what a step's results change in a sequence
queue.py             sequences that wait or run, in the order of the tenants' shares
block_manager.py     pages of the KV cache, and the prefix cache; state_slots.py: slots of recurrent states
model_runner.py      one step: a batch in, sampled tokens or vectors of texts out
executor.py          the interface of executors, the one of torch, and the choice among them
sampler.py           logits to tokens; logits_processors.py: bias, penalties, masks, top-k, top-p, min-p
ranks/               further processes that compute a step too; rank_loader.py: the engine over them
encoder_loader.py    the engine over an encoder; classifier_loader.py: the head of a classifier
adapters.py          the adapters in memory, and who uses them
"""
