"""Encoders: one file each behind one small protocol."""
