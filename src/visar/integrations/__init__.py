"""Adapters: ViSAR in the frameworks that applications are built with."""
