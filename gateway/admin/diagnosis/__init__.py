"""`headrace why`: the causes of what goes wrong, each with its evidence and the next step.

question.py    the symptom, the time and the labels that somebody asks about
evidence.py    what the gateway has recorded, and its state now
finding.py     one cause, and groups of requests with the same one
refusals.py    causes of requests that the gateway refused
remedies.py    the next steps for each cause of a refusal
failures.py    causes of requests that failed at an upstream, and of answers that broke
conditions.py  defects of the gateway itself and of its neighbours, which the state shows
delays.py      where slow requests spend their time
report.py      all findings, the one that explains most requests first
why_api.py     `/admin/why`
why_cli.py     `headrace why`
"""
