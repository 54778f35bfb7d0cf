"""The settings of the paper's authors, for ``--as-authors``.

These settings include further differences: the prompt "paper" sets each model's layout, tiles,
decoding and 2,048 reply tokens; the judge "paper" its sampling and parsing of references;
``+authors`` the question format and precision of ColModernVBERT. Revisions are pinned where
encoders and data sets are declared. Pages are always rendered at 144 dpi.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from visar.encoders.names import parse_name
from visar.encoders.records import PUBLISHED as ENCODERS
from visar.errors import InvalidOption
from visar.generation.registry import INTERNVL, internvl_hint
from visar.generation.registry import PUBLISHED as GENERATORS

_INTERNVL = "internvl3.5"
_HAS_AUTHORS_MODE = ("colmodernvbert", ENCODERS["colmodernvbert"].repository)


def as_authors(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a plan's settings, with the authors' settings as defaults.

    Encoders run in their authors mode. Raises InvalidOption for a model whose weights differ from
    the paper's.

    >>> changed = as_authors({"encoders": ["colpali", "colmodernvbert"], "max_k": [5]})
    >>> changed["encoders"], changed["prompt"], changed["judges"], changed["max_k"]
    (('colpali', 'colmodernvbert+authors'), 'paper', ('paper',), [5])
    """
    changed = {"prompt": "paper", "judges": ("paper",), **values}
    encoders = tuple(values.get("encoders", ()))
    if encoders:
        changed["encoders"] = tuple(map(encoder_of_authors, encoders))
    if any(parse_name(name).published == "colbertv2" for name in encoders):
        changed.setdefault("ocr_engine", "tesseract")
    for name in values.get("generators", ()):
        if name.partition("=")[0] in ("internvl3.5", GENERATORS["internvl3.5"].repository):
            raise InvalidOption(
                f"{name} has different weights than the paper's InternVL3.5. {internvl_hint()}"
            )
    return changed


def encoder_of_authors(name: str) -> str:
    """Return the name of an encoder in its authors mode, if it has one.

    >>> encoder_of_authors("colmodernvbert"), encoder_of_authors("colpali")
    ('colmodernvbert+authors', 'colpali')
    """
    parts = parse_name(name)
    if (parts.kind or parts.base) not in _HAS_AUTHORS_MODE:
        return name
    return str(replace(parts, authors=True))


def paper_encoder(name: str) -> str:
    """Return the paper's encoder for a name, or else the name without its revision.

    >>> [paper_encoder(name) for name in ("vidore/colpali-v1.2", "colmodernvbert+authors")]
    ['colpali', 'colmodernvbert']
    """
    published = parse_name(name).published
    return {one.repository: known for known, one in ENCODERS.items()}.get(published, published)


def paper_generator(name: str) -> str:
    """Return the paper's generator for a name, or else the name.

    The InternVL3.5 repository for transformers has different weights than the paper's.

    >>> [paper_generator(f"openai:OpenGVLab/InternVL3_5-8B-{end}") for end in ("Instruct", "HF")]
    ['internvl3.5', 'OpenGVLab/InternVL3_5-8B-HF']
    >>> paper_generator("qwen2.5-vl=./mine"), paper_generator("internvl3.5")
    ('qwen2.5-vl', 'OpenGVLab/InternVL3_5-8B-HF')
    """
    bare = name.removeprefix("openai:").removeprefix("openai-text:").split("@")[0]
    known = bare.partition("=")[0]
    if known in GENERATORS:
        bare = GENERATORS[known].repository
    papers = {one.repository: name for name, one in GENERATORS.items() if name != _INTERNVL}
    return (papers | {INTERNVL: _INTERNVL}).get(bare, bare)


def declare_checkpoint(known: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a plan's settings with its checkpoint folder declared to be a known model.

    ``known`` is a name of ``visar encoders`` or ``visar generators`` with a checkpoint. The folder
    becomes KNOWN=FOLDER. Raises InvalidOption if the model is unknown, or unless there is exactly
    one folder among the encoders or generators.
    """
    setting = "encoders" if known in ENCODERS else "generators"
    if setting == "generators" and known not in GENERATORS:
        names = ", ".join((*ENCODERS, *GENERATORS))
        raise InvalidOption(f"Unknown model {known!r} in --as: choose one of {names}.")
    models = list(values.get(setting, ()))
    folders = [n for n, name in enumerate(models) if Path(name).expanduser().is_dir()]
    if len(folders) != 1:
        raise InvalidOption(
            f"--as {known} needs exactly one folder among the {setting}, not {len(folders)}. "
            f"Use {known}=FOLDER for each folder instead."
        )
    models[folders[0]] = f"{known}={models[folders[0]]}"
    return {**values, setting: tuple(models)}
