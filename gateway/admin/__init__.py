"""The listener of operators: its API, the console, and the life of the configuration.

listener.py     the HTTP server for operators, with bounds on connections and bodies
api/            the admin API
console/        the pages for operators, and their sessions
drafts/         drafts of the configuration: checks, replays, applies them; its history
playground/     requests of the console to models, on behalf of a signed-in person
lifecycle.py    audit entries of the process, and the status of its configuration
revision.py     the revision of a configuration, and the version of its source
config_info.py  metrics of the configuration in force
top/            the live screen of a gateway in a terminal
"""
