"""A run's records survive crashes, and files of several writers add up."""

from __future__ import annotations

from pathlib import Path

from visar.evaluation.keeping import Keeper, read_by_key
from visar.evaluation.records import Asked, Judged, Retrieved, key_of


def retrieved(question: str, k: int = 2) -> Retrieved:
    return Retrieved(
        "data", question, "embedded", "visar", k, (3, 1), (3, 1, 2), 0.5, {"query to page": 0.1}
    )


def test_what_is_kept_comes_back(tmp_path: Path) -> None:
    asked = Asked("q1", "data", "a.pdf", 12, (3, 4), answerable=True)
    judged = Judged("data", "q1", "embedded", "visar", "extractive", 5, "rules 1", correct=True)
    with (
        Keeper(tmp_path, Asked) as questions,
        Keeper(tmp_path, Retrieved) as pages,
        Keeper(tmp_path, Judged) as verdicts,
    ):
        questions.keep([asked])
        pages.keep([retrieved("q1")])
        verdicts.keep([judged])
    assert read_by_key(tmp_path, Asked) == {key_of(asked): asked}
    assert read_by_key(tmp_path, Retrieved) == {key_of(retrieved("q1")): retrieved("q1")}
    assert read_by_key(tmp_path, Judged) == {key_of(judged): judged}


def test_it_is_there_before_the_keeper_ends(tmp_path: Path) -> None:
    with Keeper(tmp_path, Retrieved) as keeper:
        keeper.keep([retrieved("q1")])
        assert len(read_by_key(tmp_path, Retrieved)) == 1


def test_a_line_cut_off_by_a_crash_is_passed_over(tmp_path: Path) -> None:
    with Keeper(tmp_path, Retrieved) as keeper:
        keeper.keep([retrieved("q1"), retrieved("q2")])
    (file,) = tmp_path.glob("retrieved*.jsonl")
    whole = file.read_bytes()
    for end in range(len(whole) - 2, len(whole) // 2, -7):
        file.write_bytes(whole[:end])
        assert set(read_by_key(tmp_path, Retrieved)) == {key_of(retrieved("q1"))}


def test_writers_do_not_share_a_file(tmp_path: Path) -> None:
    with Keeper(tmp_path, Retrieved) as one, Keeper(tmp_path, Retrieved) as other:
        one.keep([retrieved("q1")])
        other.keep([retrieved("q2")])
    assert len(list(tmp_path.iterdir())) == 2
    assert len(read_by_key(tmp_path, Retrieved)) == 2


def test_a_keeper_that_keeps_nothing_leaves_nothing(tmp_path: Path) -> None:
    with Keeper(tmp_path, Retrieved) as keeper:
        keeper.keep([])
    assert list(tmp_path.iterdir()) == []
