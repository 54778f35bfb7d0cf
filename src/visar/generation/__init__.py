"""Written answers: prompts, language models, and parsing of their replies."""
