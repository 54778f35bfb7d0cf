"""The name and version of the distribution, in a module that imports nothing."""

DISTRIBUTION = "visar-rag"
"""Name on PyPI, where ``visar`` is another project. The import name is ``visar``."""
__version__ = "0.1.0"
