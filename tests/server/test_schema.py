"""Requests made from the API's own description: no answer is a fault, all are as described."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.core.result import Ok

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
EXAMPLES = 6
# Endless: its events are tested in test_api.
LEFT_OUT = "/api/v1/jobs/events"
# A stream of bytes as well.
schemathesis.serializer.alias("application/x-tar", "application/octet-stream")


def operations(http: httpx2.Client) -> Iterator[Any]:
    schema = schemathesis.openapi.from_dict(http.get("openapi.json").json())
    for result in schema.get_all_operations():
        assert isinstance(result, Ok)
        operation = result.ok()
        if operation.path != LEFT_OUT:
            yield operation


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_answers_are_as_described(
    mode: GenerationMode,
    http: httpx2.Client,
    address: str,
    document: str,
    subtests: pytest.Subtests,
) -> None:
    tried = 0
    for operation in operations(http):
        there = {"document": document, "number": 1} if operation.method != "delete" else {}
        with subtests.test(f"{operation.method.upper()} {operation.path}"):
            check(operation, mode, address, there)
            tried += 1
    assert tried > 20, "The description is of fewer operations than the API has."
    assert http.get(f"documents/{document}").status_code == 200


def check(operation: Any, mode: GenerationMode, address: str, there: dict[str, Any]) -> None:
    """Send what the description allows, or does not, half of it about what is there."""

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), known=st.booleans())
    def send(case: Any, known: bool) -> None:
        if known:
            for name in case.path_parameters.keys() & there.keys():
                case.path_parameters[name] = there[name]
        case.call_and_validate(base_url=address, checks=CHECKS, timeout=60)

    # Of some operations nothing can be wrong: their parameters are any text.
    with contextlib.suppress(Unsatisfiable) if mode.is_negative else contextlib.nullcontext():
        send()
