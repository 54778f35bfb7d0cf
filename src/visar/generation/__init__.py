"""Answers from pages: one file per way of answering."""
