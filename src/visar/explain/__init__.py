"""Explanations of a choice of pages, as data, pictures and reports."""
