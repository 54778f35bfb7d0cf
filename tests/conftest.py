"""Shared by all tests."""

from __future__ import annotations

import os

from hypothesis import settings

# What lands must not depend on chance: the same examples every time there, new ones elsewhere.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")
