"""The listener of operators: its API, the console, and the life of the configuration.

listener.py     the HTTP server for operators, with bounds on connections and bodies
front.py        its paths: the admin API, health, metrics, state, and the console
api/            the admin API
console/        the pages for operators
drafts/         drafts of the configuration: checks, replays, applies them; its history
playground/     requests of the console to models, on behalf of a signed-in person
diagnosis/      `headrace why`: the causes of failed and slow requests
lifecycle.py    audit entries of the process; the status, the revision and the metrics of its configuration
top_cli.py      `headrace top`: the live screen of a gateway in a terminal
"""
