"""A document to try ViSAR with: the annual report of a company that doesn't exist."""

from pathlib import Path

REPORT = Path(__file__).with_name("harbour-light-annual-report.pdf")
"""40 pages of text, tables and charts, two of them scanned."""
