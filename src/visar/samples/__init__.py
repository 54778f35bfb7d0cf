"""A sample document: the annual report of a fictional company."""

from pathlib import Path

REPORT = Path(__file__).with_name("harbour-light-annual-report.pdf")
"""Path of the report: 40 pages of text, tables and charts; two pages are scanned."""
