"""Text and tokens, and the parts of an answer's text.

tokenizer.py         text to token ids and back; tokenizer_loader.py: from a model's files
gguf_tokenizer.py    tokenizers from GGUF metadata
special_spellings.py control tokens that are spelled in texts
text_slices.py       cuts long texts into slices that are encoded one after another
detokenizer.py       tokens to text, in whole characters
stop_strings.py      ends a text at the first of its stop strings
chat_template.py     a conversation to a prompt, with the model's template; tool_prompt.py: tools for templates without
tool_formats.py      how models write calls; tool_parser.py: separates calls from text
think_parser.py      separates thoughts from text
answer_parser.py     an answer's thoughts, text and calls
"""
