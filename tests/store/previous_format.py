"""Indexes in the previous format, without a column for blocks."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from visar.store.database import DATABASE

SCHEMA = Path(__file__).with_name("format_2.sql")
TABLES = ("documents", "pages", "vectors", "collections", "drafts", "draft_pages")


def downgrade(kind: str, index: Path) -> None:
    """Convert a closed index to the previous format."""
    if kind == "sqlite":
        _make_format_2(index)
        return
    import lancedb

    lancedb.connect(index).open_table("rows").drop_columns(["blocks"])


def _make_format_2(index: Path) -> None:
    new = index / "new.sqlite"
    connection = sqlite3.connect(new, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(SCHEMA.read_text(encoding="utf-8"))
    connection.execute("ATTACH ? AS newer", (str(index / DATABASE),))
    for table in TABLES:
        names = [row[1] for row in connection.execute(f"PRAGMA main.table_info ({table})")]
        columns = ", ".join(names)
        connection.execute(
            f"INSERT INTO main.{table} ({columns}) "  # noqa: S608
            f"SELECT {columns} FROM newer.{table}"
        )
    connection.execute("PRAGMA main.user_version = 2")
    connection.execute("DETACH newer")
    connection.close()
    new.replace(index / DATABASE)


def has_blocks(kind: str, index: Path) -> bool:
    """Return whether the tables have the column for blocks; it must be all of them or none."""
    if kind == "lance":
        import lancedb

        names: list[str] = lancedb.connect(index).open_table("rows").schema.names
        return "blocks" in names
    connection = sqlite3.connect(index / DATABASE)
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    results = {
        "blocks" in [row[1] for row in connection.execute(f"PRAGMA table_info ({table})")]
        for table in ("pages", "draft_pages")
    }
    connection.close()
    assert results == {version == 3}
    return version == 3
