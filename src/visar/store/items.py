"""Small values in an index besides documents: conversations and access tokens.

Each item is a JSON value with a kind and an id. A change is atomic, even between processes.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from typing import Any, TypeAlias

Change: TypeAlias = Callable[[Any], Any]
"""Function from the old value (None if there is none) to the new one (None to delete it)."""

# Created with the first item, so that indexes of older versions need no upgrade.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS items (
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    content TEXT NOT NULL,  -- JSON
    PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID
"""
_EXISTS = "SELECT 1 FROM sqlite_master WHERE name = 'items'"


def read_items(connection: sqlite3.Connection, kind: str, prefix: str) -> dict[str, Any]:
    """Return the items whose ids begin with a prefix, sorted by id."""
    if connection.execute(_EXISTS).fetchone() is None:
        return {}
    query = "SELECT id, content FROM items WHERE kind = ? AND substr(id, 1, ?) = ? ORDER BY id"
    rows = connection.execute(query, (kind, len(prefix), prefix))
    return {id_: json.loads(content) for id_, content in rows}


def change_item(connection: sqlite3.Connection, kind: str, id_: str, change: Change) -> Any:
    """Replace an item in the current transaction and return the new value."""
    connection.execute(_SCHEMA)
    query = "SELECT content FROM items WHERE kind = ? AND id = ?"
    row = connection.execute(query, (kind, id_)).fetchone()
    value = change(None if row is None else json.loads(row[0]))
    if value is None:
        connection.execute("DELETE FROM items WHERE kind = ? AND id = ?", (kind, id_))
    else:
        content = json.dumps(value, ensure_ascii=False)
        connection.execute("INSERT OR REPLACE INTO items VALUES (?, ?, ?)", (kind, id_, content))
    return value
