"""The passages of the chosen pages that answer a question."""
