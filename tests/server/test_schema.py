"""Requests generated from the OpenAPI description: all responses match it, and none is a 500."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.core.result import Ok

CONFIG = Path(__file__).with_name("schemathesis.toml")
EXAMPLES = 5
# An endless stream, which is tested in test_api.py.
SKIPPED = "/api/v1/jobs/events"
# Generate bytes for it, too.
schemathesis.serializer.alias("application/x-tar", "application/octet-stream")


def operations(http: httpx2.Client) -> Iterator[Any]:
    config = schemathesis.Config.from_path(CONFIG)
    schema = schemathesis.openapi.from_dict(http.get("openapi.json").json(), config=config)
    for result in schema.get_all_operations():
        assert isinstance(result, Ok)
        operation = result.ok()
        if operation.path != SKIPPED:
            yield operation


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_responses_match_the_description(
    mode: GenerationMode,
    http: httpx2.Client,
    address: str,
    document: str,
    subtests: pytest.Subtests,
) -> None:
    tried = 0
    for operation in operations(http):
        existing = {"document": document, "number": 1} if operation.method != "delete" else {}
        with subtests.test(f"{operation.method.upper()} {operation.path}"):
            check(operation, mode, address, existing)
            tried += 1
    assert tried > 20, "operations are missing in the description"
    assert http.get(f"documents/{document}").status_code == 200


def test_systematic_cases_and_sequences_match_the_description(address: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIG)]
    command += ["run", f"{address}/api/v1/openapi.json", "--exclude-path", SKIPPED]
    command += ["--phases", "coverage,stateful", "--max-examples", "3"]
    command += ["--seed", "1", "--generation-database", "none", "--no-color"]
    # It writes files to the working directory.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def check(operation: Any, mode: GenerationMode, address: str, existing: dict[str, Any]) -> None:
    """Send valid or invalid requests for an operation, half of them about an existing document."""

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), use_existing=st.booleans())
    def send(case: Any, use_existing: bool) -> None:
        if use_existing:
            for name in case.path_parameters.keys() & existing.keys():
                case.path_parameters[name] = existing[name]
        case.call_and_validate(base_url=address, timeout=60)

    # Operations whose parameters can be any text have no invalid requests.
    with contextlib.suppress(Unsatisfiable) if mode.is_negative else contextlib.nullcontext():
        send()
