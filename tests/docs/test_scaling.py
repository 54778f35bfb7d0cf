"""Check the commands in docs/scaling.md, the costs of a library, and the file for Kubernetes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from benchmarks.scaling import Assumptions, cost

from visar.cli.app import make_app

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
JOB = ROOT / "examples" / "kuberay.yaml"


def parse(command: str) -> dict[str, Any]:
    """Parse a command without running it; fail if it has an unknown option."""
    words = [
        word for word in shlex.split(command, comments=True) if not re.match(r"[A-Z_]+=", word)
    ]
    assert words.pop(0) == "visar"
    context: Any = None
    chosen: Any = typer.main.get_command(make_app(words[0]))
    while hasattr(chosen, "commands"):
        chosen = chosen.commands[words.pop(0)]
    context = chosen.make_context("visar", words)
    return dict(context.params)


@pytest.mark.parametrize(
    "command", re.findall(r"^\$ ((?:[A-Z_]+=\S+ )?visar .*)$", PAGE, re.MULTILINE)
)
def test_commands_can_be_parsed(command: str) -> None:
    assert parse(command)["index"].startswith("s3://library/")


def test_a_hundred_times_the_pages_cost_a_hundred_times_as_much() -> None:
    small, large = (cost(pages, Assumptions(ocr_share=0.5)) for pages in (10_000, 1_000_000))
    for stage, values in small.items():
        assert [100 * value for value in values] == pytest.approx(list(large[stage]))


def test_the_job_for_kubernetes() -> None:
    job = yaml.safe_load(JOB.read_text(encoding="utf-8"))
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    asked = parse(job["spec"]["entrypoint"])
    assert (asked["ray"], asked["files"]) == ("auto", ("s3://documents",))
    cluster = job["spec"]["rayClusterSpec"]
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'"ray>={cluster["rayVersion"].removesuffix(".0")},' in project
    head, workers = cluster["headGroupSpec"], cluster["workerGroupSpecs"]
    assert {group["groupName"] for group in workers} == {"cpu", "gpu"}
    for group in [head, *workers]:
        # Kubernetes takes texts alone here.
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        (container,) = group["template"]["spec"]["containers"]
        assert container["image"]
        assert {"name": "RAY_USAGE_STATS_ENABLED", "value": "0"} in container["env"]
        requests, limits = (container["resources"][kind] for kind in ("requests", "limits"))
        # Ray counts what is limited: a node that is given less than it counts is overloaded.
        assert requests == limits
        assert int(requests["cpu"]) >= 2
        assert re.fullmatch(r"\d+Gi", requests["memory"])
    for group in workers:
        assert 0 <= group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
