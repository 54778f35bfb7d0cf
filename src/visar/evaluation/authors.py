"""The settings of an evaluation as the paper's authors computed it: ``--as-authors``.

Whatever else differed belongs to these settings: the prompt "paper" brings each model's layout,
tiles, decoding and 2,048 tokens of reply, the judge "paper" its sampling and its reading of
references, ``+authors`` the questions and precision of ColModernVBERT. Revisions are pinned where
encoders and data sets are declared. Pages are rendered at 144 dpi in any case.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from visar.encoders.names import parse_name
from visar.encoders.registry import PUBLISHED as ENCODERS
from visar.errors import InvalidOption
from visar.generation.registry import INTERNVL, internvl_hint
from visar.generation.registry import PUBLISHED as GENERATORS

_INTERNVL = "internvl3.5"
_WITH_AUTHORS_MODE = ("colmodernvbert", ENCODERS["colmodernvbert"].repository)


def as_authors(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a plan with those of the paper's authors where it gives none.

    Encoders run in their authors' mode. Raises InvalidOption for a model that has other weights
    than the paper's.

    >>> changed = as_authors({"encoders": ["colpali", "colmodernvbert"], "max_k": [5]})
    >>> changed["encoders"], changed["prompt"], changed["judges"], changed["max_k"]
    (('colpali', 'colmodernvbert+authors'), 'paper', ('paper',), [5])
    """
    changed = {"prompt": "paper", "judges": ("paper",), **values}
    encoders = tuple(values.get("encoders", ()))
    if encoders:
        changed["encoders"] = tuple(map(_encoder, encoders))
    if any(parse_name(name).published == "colbertv2" for name in encoders):
        changed.setdefault("ocr_engine", "tesseract")
    for name in values.get("generators", ()):
        if name.partition("=")[0] in ("internvl3.5", GENERATORS["internvl3.5"].repository):
            raise InvalidOption(
                f"{name} has other weights than the paper's InternVL3.5. {internvl_hint()}"
            )
    return changed


def _encoder(name: str) -> str:
    parts = parse_name(name)
    if (parts.kind or parts.base) not in _WITH_AUTHORS_MODE:
        return name
    return str(replace(parts, authors=True))


def paper_encoder(name: str) -> str:
    """Return the encoder of the paper that a name stands for; else the name without its revision.

    >>> [paper_encoder(name) for name in ("vidore/colpali-v1.2", "colmodernvbert+authors")]
    ['colpali', 'colmodernvbert']
    """
    published = parse_name(name).published
    return {one.repository: known for known, one in ENCODERS.items()}.get(published, published)


def paper_generator(name: str) -> str:
    """Return the generator of the paper that a name stands for; else the name.

    The repository of InternVL3.5 that transformers loads has other weights than the paper's.

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


def tell_folder(known: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a plan whose one checkpoint in a folder is said to be a known model.

    ``known`` is a name of ``visar encoders`` or ``visar generators`` that has a checkpoint; the
    folder is then named KNOWN=FOLDER. Raises InvalidOption if there is no such model, or not one
    folder among the encoders or generators.
    """
    setting = "encoders" if known in ENCODERS else "generators"
    if setting == "generators" and known not in GENERATORS:
        names = ", ".join((*ENCODERS, *GENERATORS))
        raise InvalidOption(f"A checkpoint can be said to be one of {names}, not {known!r}.")
    named = list(values.get(setting, ()))
    folders = [place for place, name in enumerate(named) if Path(name).expanduser().is_dir()]
    if len(folders) != 1:
        raise InvalidOption(
            f"--as {known} goes with one folder among the {setting}; there are {len(folders)}. "
            f"Name each as {known}=FOLDER instead."
        )
    named[folders[0]] = f"{known}={named[folders[0]]}"
    return {**values, setting: tuple(named)}
