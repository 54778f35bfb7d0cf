"""From a question to pages: the registry of methods, search over documents, passages."""
