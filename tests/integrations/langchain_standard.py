"""LangChain's standard tests of retrievers, run by test_langchain.py."""

from __future__ import annotations

import os
from typing import Any

from langchain_core.retrievers import BaseRetriever
from langchain_tests.integration_tests import RetrieversIntegrationTests

from visar.index import Index
from visar.integrations.langchain import VisarRetriever

LIBRARY = Index.open(os.environ["LIBRARY"], create=False)


class TestVisarRetriever(RetrieversIntegrationTests):  # type: ignore[misc]
    @property
    def retriever_constructor(self) -> type[BaseRetriever]:
        return VisarRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"index": LIBRARY}

    @property
    def retriever_query_example(self) -> str:
        return "How long is the warranty of the Aurora lantern?"
