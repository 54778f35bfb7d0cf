"""ViSAR in Haystack, whose YAML files name components of ``haystack_integrations`` alone."""

from haystack_integrations.components.retrievers.visar.retriever import VisarRetriever

__all__ = ["VisarRetriever"]
