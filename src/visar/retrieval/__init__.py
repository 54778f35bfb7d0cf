"""Retrieval: methods, candidates, search and calibration."""
