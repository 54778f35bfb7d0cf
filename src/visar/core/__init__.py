"""The paper's method: numpy arrays in, a `Selection` out. No files, no models."""

from visar.core.selection import Selection, maxsim, select
from visar.core.vectors import PageVectors, prepare

__all__ = ["PageVectors", "Selection", "maxsim", "prepare", "select"]
