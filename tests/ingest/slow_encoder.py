"""A slow encoder, for tests of events during an addition."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from tests.ingest.conftest import FirstWord
from visar.documents import Page
from visar.encoders.encoder import PageEmbedding


class SlowWords(FirstWord):
    name = "slow-words"

    def encode_pages(self, pages: Sequence[Page], images: Sequence[Any]) -> list[PageEmbedding]:
        time.sleep(0.03 * len(pages))
        return super().encode_pages(pages, images)
