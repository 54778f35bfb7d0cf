"""The index in object storage: LanceDB tables, for many machines at once."""
