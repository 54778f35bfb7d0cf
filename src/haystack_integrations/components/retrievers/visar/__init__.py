"""ViSAR for Haystack, whose YAML files can only refer to packages in ``haystack_integrations``."""

from haystack_integrations.components.retrievers.visar.retriever import VisarRetriever

__all__ = ["VisarRetriever"]
