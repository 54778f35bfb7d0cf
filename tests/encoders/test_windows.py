from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from visar.encoders.windows import OVERLAP, WINDOW, cut_windows


@given(st.integers(0, 5000))
def test_every_token_is_taken_once_and_in_order(n_tokens: int) -> None:
    taken = [i for window in cut_windows(n_tokens) for i in range(window.first, window.last)]
    assert taken == list(range(n_tokens))


@given(st.integers(1, 5000))
def test_no_token_lacks_context(n_tokens: int) -> None:
    for window in cut_windows(n_tokens):
        assert window.end - window.start <= WINDOW
        assert window.start == 0 or window.first - window.start >= OVERLAP // 2
        assert window.end == n_tokens or window.end - window.last >= OVERLAP // 2


@given(st.integers(WINDOW + 1, 5000))
def test_little_more_than_the_overlap_is_read_twice(n_tokens: int) -> None:
    windows = cut_windows(n_tokens)
    read = sum(window.end - window.start for window in windows)
    assert read - n_tokens < (len(windows) - 1) * OVERLAP + len(windows)
    # One window less would not do.
    assert (len(windows) - 1) * (WINDOW - OVERLAP) < n_tokens - OVERLAP
