"""Shadow traffic: copies of requests to another target, and the comparison of the answers.

plane.py       the parts in one process, and their reconfiguration
copies.py      draws, sends and compares copies, behind the client's answer
copied.py      one copy: the request, and the client's answer
exclusions.py  requests that are never copied
pools.py       pools of copies: connections, breakers and measurements of their own
prices.py      the prices of copies
seconds.py     histograms of the times of both answers
models.py      models as targets, without limits, prices, caches and rollouts
answers.py     decodes whole answers of any wire for their comparison
comparer.py    comparisons, at once or in a worker process
judges.py      models that decide whether two texts agree
samples.py     the redacted texts of a differing copy
live.py        the shadows of one process, across reloads
schema.py      the table in the state database
store.py       reads the counts of all processes, and adds to them
writer.py      a loop: stores the counts, and reports a new verdict
operators.py   an operator's view, for the admin API and the command line
metrics.py     metrics of shadows
cli.py         `headrace shadow`

The path of a count: `copies.py` compares the answers, `policies.shadowing` counts the pair, `writer.py` adds the counts
of this process to the sums in the database, and `policies.shadowing.pairs` judges the sums.
"""
