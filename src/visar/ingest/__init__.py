"""Adding documents to an index: read pages, encode them, commit them."""
