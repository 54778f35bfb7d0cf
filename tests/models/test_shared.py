"""Models that a process shares: made once, and without making others wait."""

from __future__ import annotations

import threading

from visar.models.shared import SharedModels


def test_a_model_is_made_once() -> None:
    models, made = SharedModels(), iter(["first", "second"])
    assert models.get("a", lambda: next(made)) == "first"
    assert models.get("a", lambda: next(made)) == "first"


def test_a_model_that_is_being_downloaded_holds_up_no_other() -> None:
    models, asked, answered = SharedModels(), threading.Event(), threading.Event()

    def download() -> str:
        asked.set()
        assert answered.wait(60)
        return "slow"

    thread = threading.Thread(target=models.get, args=("slow", download))
    thread.start()
    try:
        assert asked.wait(60)
        assert models.get("quick", lambda: "quick") == "quick"
    finally:
        answered.set()
        thread.join()
    assert models.get("slow", str) == "slow"
