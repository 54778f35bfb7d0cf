"""The items of an index in object storage: a log whose latest row per id is valid."""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from visar.errors import StoreError
from visar.store.items import Change
from visar.store.lance.tables import LanceTable, Row, create_items, open_items, quote

_ATTEMPTS = 20
_COLUMNS = ("uid", "id", "number", "content")


class ItemLog:
    """A log of items by kind and id.

    Each row of an item has the next number. If two processes append the same number, the first
    row is valid.
    """

    def __init__(self, location: str, options: Mapping[str, str]) -> None:
        self._location, self._options = location, options
        self._table: LanceTable | None = None

    def read(self, kind: str, prefix: str) -> dict[str, Any]:
        """Return the items whose ids begin with a prefix, sorted by id."""
        table = self._open()
        if table is None:
            return {}
        rows = table.scan(_COLUMNS, f"kind = {quote(kind)} AND starts_with(id, {quote(prefix)})")
        latest = _latest(rows)
        return {
            id_: json.loads(latest[id_]["content"])
            for id_ in sorted(latest)
            if latest[id_]["content"] is not None
        }

    def change(self, kind: str, id_: str, change: Change) -> Any:
        """Replace an item and return the new value; retry if another process changed it first."""
        table = self._open() or self._create()
        where = f"kind = {quote(kind)} AND id = {quote(id_)}"
        for _ in range(_ATTEMPTS):
            before = _latest(table.scan(_COLUMNS, where)).get(id_)
            old = None if before is None else before["content"]
            value = change(None if old is None else json.loads(old))
            if value is None and old is None:
                return None
            new: Row = {
                "uid": uuid.uuid4().hex,
                "kind": kind,
                "id": id_,
                "number": 0 if before is None else before["number"] + 1,
                "content": None if value is None else json.dumps(value, ensure_ascii=False),
            }
            table.append([new])
            rows = table.scan(_COLUMNS, where)
            if next(row["uid"] for row in rows if row["number"] == new["number"]) == new["uid"]:
                return value
            table.delete("uid", [str(new["uid"])])
            time.sleep(random.uniform(0, 0.1))
        raise StoreError(f"Can't change {kind} {id_}: other processes keep changing it. Try again.")

    def _open(self) -> LanceTable | None:
        if self._table is None:
            self._table = open_items(self._location, self._options)
        return self._table

    def _create(self) -> LanceTable:
        self._table = create_items(self._location, self._options)
        return self._table

    def compact(self, keep_versions: timedelta) -> None:
        """Delete all rows but the latest of each item; a deletion keeps its row and number."""
        table = self._open()
        if table is None:
            return
        rows = table.scan((*_COLUMNS, "kind"))
        kinds = {row["kind"] for row in rows}
        uids = {
            row["uid"]
            for kind in kinds
            for row in _latest(row for row in rows if row["kind"] == kind).values()
        }
        table.delete("uid", [row["uid"] for row in rows if row["uid"] not in uids])
        table.compact(keep_versions)


def _latest(rows: Iterable[Row]) -> dict[str, Row]:
    """Return the valid row of each id: the first with the highest number."""
    latest: dict[str, Row] = {}
    for row in rows:
        current = latest.get(row["id"])
        if current is None or row["number"] > current["number"]:
            latest[row["id"]] = row
    return latest
