"""The ways of choosing pages that are compared, each under the key its results are kept by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# The paper's sweeps: T from 1 to 10³, γ from 1 to 10⁸.
T_SWEEP = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
GAMMA_SWEEP = tuple(10.0**power for power in range(9))


@dataclass(frozen=True, slots=True)
class Method:
    """A way of choosing pages."""

    key: str
    label: str
    """As the paper's tables name it."""
    group: str
    """"main", "ablation", "T", "gamma" or "acceleration": where it is reported."""
    rule: str = "visar"
    """What decides k: visar, top-k, single-vector, largest-gap, score-cluster or oracle."""
    scores: str = "late"
    """What the other rules look at: "late" interaction, or the self-similarity "s_p"."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of ``visar.select``."""

    @property
    def is_adaptive(self) -> bool:
        return self.rule not in ("top-k", "single-vector")


_APPROX = Method(
    "visar-approx", "ViSAR (Approx.)", "main", options={"top_j": 450, "top_p": 75, "top_s": 10}
)
_MAIN = (
    Method("late-interaction", "Late-Interaction", "main", "top-k"),
    Method("single-vector", "Single-Vector", "main", "single-vector"),
    Method("visar", "ViSAR", "main"),
    _APPROX,
    Method("largest-gap", "Largest-Gap", "main", "largest-gap"),
    Method("score-cluster", "Score-Cluster", "main", "score-cluster"),
    Method("oracle", "Oracle", "main", "oracle"),
)
_ABLATIONS = (
    Method("visar w_i=1", "w_i = 1", "ablation", options={"unweighted": ("tokens",)}),
    Method("visar w_p=1", "w_p = 1", "ablation", options={"unweighted": ("pages",)}),
    Method(
        "visar w_i=w_p=1", "w_i = w_p = 1", "ablation", options={"unweighted": ("tokens", "pages")}
    ),
    Method("visar top-k", "Fixed top-k on s_p", "ablation", "top-k", "s_p"),
    Method("visar largest-gap", "Largest-Gap on s_p", "ablation", "largest-gap", "s_p"),
    Method("visar score-cluster", "Score-Cluster on s_p", "ablation", "score-cluster", "s_p"),
)
_SWEEPS = (
    *(Method(f"visar T={t}", f"T = {t}", "T", options={"top_t": t}) for t in T_SWEEP),
    *(
        Method(f"visar gamma={g:g}", f"γ = {g:g}", "gamma", options={"gamma": g})
        for g in GAMMA_SWEEP
    ),
)

# ViSAR (Approx.) takes three shortcuts at once; here is each alone.
_SHORTCUTS = tuple(
    Method(
        f"visar {name}={value}", f"top-{name[-1]} = {value}", "acceleration", options={name: value}
    )
    for name, value in _APPROX.options.items()
)

METHODS = {method.key: method for method in (*_MAIN, *_ABLATIONS, *_SWEEPS, *_SHORTCUTS)}
