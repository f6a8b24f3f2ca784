"""Text and tokens, and the parts of an answer's text.

tokenizer.py          text to token ids and back, whole or token by token
tokenizer_loader.py   a tokenizer from a model's files; declared_tokens.py: the tokens that the files beside it declare
vocabularies.py       whether two tokenizers give the same ids to the same tokens
encoder_vocabularies.py  the tokenizers of encoders in GGUF files
pairs.py              a query and a document as one text
stop_strings.py       ends a text at the first of its stop strings
chat_template.py      a conversation to a prompt, with the model's template; own_marks.py: what a template writes itself
template_features.py  what a template takes, and messages in that form; tool_words.py: tools for one without them
tool_parser.py        how models write calls, and their separation from text; tagged_call.py: calls between tags
answer_parser.py      an answer's thoughts, text and calls
"""
