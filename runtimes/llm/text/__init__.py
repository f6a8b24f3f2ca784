"""Text and tokens, and the parts of an answer's text.

tokenizer.py         text to token ids and back, whole or token by token; tokenizer_loader.py: from a model's files
stop_strings.py      ends a text at the first of its stop strings
chat_template.py     a conversation to a prompt, with the model's template
tool_parser.py       how models write calls, and their separation from text
answer_parser.py     an answer's thoughts, text and calls
"""
