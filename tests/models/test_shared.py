"""Shared models are created once, without blocking other models."""

from __future__ import annotations

import threading

from visar.models.protocols import SharedModels


def test_a_model_is_created_once() -> None:
    models, values = SharedModels(), iter(["first", "second"])
    assert models.get("a", lambda: next(values)) == "first"
    assert models.get("a", lambda: next(values)) == "first"


def test_a_model_being_downloaded_does_not_block_others() -> None:
    models, started, finish = SharedModels(), threading.Event(), threading.Event()

    def download() -> str:
        started.set()
        assert finish.wait(60)
        return "slow"

    thread = threading.Thread(target=models.get, args=("slow", download))
    thread.start()
    try:
        assert started.wait(60)
        assert models.get("quick", lambda: "quick") == "quick"
    finally:
        finish.set()
        thread.join()
    assert models.get("slow", str) == "slow"
