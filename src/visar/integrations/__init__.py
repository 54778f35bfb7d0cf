"""ViSAR where people already work: one module for each framework, each with an extra."""
