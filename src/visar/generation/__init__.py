"""Answers written from pages: prompts, language models, and what is read out of their replies."""
