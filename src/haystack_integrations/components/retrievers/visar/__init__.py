"""ViSAR for Haystack, whose YAML files may only name components of ``haystack_integrations``."""

from haystack_integrations.components.retrievers.visar.retriever import VisarRetriever

__all__ = ["VisarRetriever"]
