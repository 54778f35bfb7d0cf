"""Encoders, each in a file of its own, behind one small protocol."""
