"""The methods that an evaluation compares: those of the registry, and variants of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

from visar import plugins
from visar.retrieval import methods as registry
from visar.retrieval.methods import APPROXIMATION, COSTS, Method, get_method, method_names

GROUPS = ("main", "others", "ablation", "T", "gamma", "acceleration")
DEPTH = 10
"""As far as the tables look down a ranking."""
# The paper's grids.
T_SWEEP = (1, 5, 10, 25, 50, 75, 100, 150, 200, 300, 500, 750, 1000)
GAMMA_SWEEP = tuple(10.0**power for power in range(9))


def _variant(base: str, name: str, label: str, group: str, options: Mapping[str, Any]) -> Method:
    method = registry.METHODS[base]
    # Every variant needs ViSAR's similarities, at least for s_p.
    cost = max(method.cost, "similarity", key=COSTS.index)
    return replace(method, name=name, label=label, group=group, options=options, cost=cost)


def _accelerations() -> list[Method]:
    """Each shortcut of the approximation alone, and in pairs."""
    chosen = [names for count in (1, 2) for names in combinations(APPROXIMATION, count)]
    return [
        _variant(
            "visar",
            " ".join(["visar", *(f"{name}={APPROXIMATION[name]}" for name in names)]),
            ", ".join(f"{name.replace('_', '-')} = {APPROXIMATION[name]}" for name in names),
            "acceleration",
            {name: APPROXIMATION[name] for name in names},
        )
        for names in chosen
    ]


_UNWEIGHTED = {"w_i": "tokens", "w_p": "pages"}
_METHODS = (
    # Fixed top-k comes first in the tables, as in the paper's. What needs a calibration is run by
    # its name alone: most encoders have none.
    *sorted(
        (method for method in registry.METHODS.values() if not method.needs_calibration),
        key=lambda method: method.adaptive,
    ),
    *(
        _variant(
            "visar",
            f"visar {'='.join(names)}=1",
            f"{' = '.join(names)} = 1",
            "ablation",
            {"unweighted": tuple(_UNWEIGHTED[name] for name in names)},
        )
        for names in (("w_i",), ("w_p",), ("w_i", "w_p"))
    ),
    *(
        _variant(base, f"visar {base}", f"{label} on s_p", "ablation", {"scores": scores})
        for base, label, scores in (
            ("top-k", "Fixed top-k", "s_p"),
            ("largest-gap", "Largest-Gap", "normalized s_p"),
            ("score-cluster", "Score-Cluster", "normalized s_p"),
        )
    ),
    *(_variant("visar", f"visar T={t}", f"T = {t}", "T", {"top_t": t}) for t in T_SWEEP),
    *(
        _variant("visar", f"visar gamma={g:g}", f"γ = {g:g}", "gamma", {"gamma": g})
        for g in GAMMA_SWEEP
    ),
    *_accelerations(),
)
METHODS: Mapping[str, Method] = {method.name: method for method in _METHODS}
"""The methods that an evaluation knows, by the name that results are kept under."""


def find_methods(names: Iterable[str], depth: int = DEPTH) -> list[Method]:
    """Return the methods that names stand for, each once, those that take long last.

    Names are those of `METHODS`, of groups of them, of methods of installed packages, or
    ``module:function``. ``depth`` is how many pages a method takes that does not decide k by
    itself. Raises InvalidOption if a name stands for nothing.
    """
    found: dict[str, Method] = {}
    for name in names:
        for method in _named(name):
            if not method.adaptive:
                method = replace(method, options={**method.options, "k": depth})
            found[method.name] = method
    return sorted(found.values(), key=lambda method: COSTS.index(method.cost))


def _named(name: str) -> list[Method]:
    if name in GROUPS:
        return [method for method in METHODS.values() if method.group == name]
    if name in METHODS:
        return [METHODS[name]]
    if name not in method_names() and not plugins.is_object_name(name):
        raise plugins.unknown_name(
            "method", name, dict.fromkeys((*GROUPS, *METHODS, *method_names()))
        )
    return [get_method(name)]


def is_answered(method: Method) -> bool:
    """Whether generators are given the pages of a method.

    Not those of the oracle, which knows the evidence, of the approximation, which chooses the
    same pages as ViSAR, nor of sweeps and weights, which are about the ranking.
    """
    if method.group == "ablation":
        return "scores" in method.options
    is_main = method.group == "main" and not method.needs_evidence
    return is_main and method.name != "visar-approx"
