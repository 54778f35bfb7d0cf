"""Adding documents to an index: reading, encoding and committing pages."""
