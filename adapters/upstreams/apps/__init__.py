"""Apps: servers whose paths and bodies are their own."""
