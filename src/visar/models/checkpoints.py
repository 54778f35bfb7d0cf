"""Checkpoints: found in a local folder, or at the Hugging Face hub under a name."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from visar.errors import CheckpointError, InvalidOption
from visar.models.hub import (
    cached_folder,
    download,
    has_weights,
    hub_file,
    is_adapter,
    is_downloaded,
    is_reachable,
    unreachable,
)

# Files that decide what a checkpoint's vectors are.
_DECISIVE = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "*.metadata", "*.py")
# Larger files are known by their size and samples: a start must not read gigabytes.
_READ_WHOLE = 256 << 20
_SAMPLES = 64
_SAMPLE_BYTES = 64 << 10
_COMMIT = re.compile("[0-9a-f]{40}")
# Subfolders of sentence-transformers, such as 1_Dense: parts of the model.
_MODULES = "[0-9]*_*"
_SENTENCE_TRANSFORMERS = "config_sentence_transformers.json"

COLBERT = "ColBERT"
"""Among the architectures of every ColBERT: Stanford's, PyLate's and sentence-transformers'."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that was found, and its configuration."""

    name: str
    """As the user gave it."""
    revision: str | None
    """The commit at the hub; None for a local folder."""
    fingerprint: str
    """Differs between checkpoints: the commit or a hash of the local files, with the commit of a
    base model that comes from the hub."""
    config: dict[str, Any]
    """Of the model; for an adapter, of its base model."""
    adapter: dict[str, Any] | None
    """The adapter's own configuration; None if it is not an adapter."""
    base: str | None = None
    """The folder or hub name of the model that the adapter adapts."""
    base_revision: str | None = None
    """The commit of the base model at the hub; None if it is a folder."""
    is_offline: bool = False
    """Whether the hub is not asked, so that only what was downloaded before can be used."""
    is_colbert: bool = False
    """Whether it makes a vector for each token of a text."""

    @property
    def is_local(self) -> bool:
        return self.revision is None

    def folder(self) -> str:
        """Return its folder on this machine; download it and its base model if need be.

        The libraries are given this folder and never the hub's name, and ``base_revision`` for the
        base model: its main branch may have moved since the fingerprint was taken. Raises
        CheckpointError if something is not on this machine and cannot be downloaded.
        """
        if self.is_local:
            return str(Path(self.name).expanduser())
        if self.is_offline:
            found = cached_folder(self.name, self.revision)
            if found is None or not is_downloaded(self.name, self.revision, self.base_revision):
                raise CheckpointError(unreachable(self.name, self.base))
            return str(found)
        if self.base is not None:
            download(self.base, self.base_revision, _DECISIVE)
        return str(download(self.name, self.revision, _DECISIVE))

    @property
    def identity(self) -> str:
        """Its name without the folder it lies in, and its fingerprint."""
        name = Path(self.name).resolve().name if self.is_local else self.name
        return f"{name}@{self.fingerprint}"

    @property
    def model_type(self) -> str:
        return str(self.config.get("model_type", ""))

    @property
    def architectures(self) -> list[str]:
        """The classes that its configuration names, and `COLBERT` if it is one."""
        named = self.config.get("architectures")
        names = [str(name) for name in named] if isinstance(named, list) else []
        return [*names, COLBERT] if self.is_colbert else names

    @property
    def adapted_modules(self) -> str:
        """The modules that the adapter changes, as text of its configuration."""
        adapter = self.adapter or {}
        return f"{adapter.get('target_modules')} {adapter.get('modules_to_save')}"


def is_checkpoint_name(name: str) -> bool:
    """Whether a name means a checkpoint: it has a slash, or is an existing path."""
    return "/" in name or _local_path(name).exists()


def find_checkpoint(
    name: str | Checkpoint, revision: str | None = None, base_revision: str | None = None
) -> Checkpoint:
    """Find a checkpoint by local path or hub name; a Checkpoint is returned as it is.

    A local folder never leads to a download: the base model that an adapter names must be on
    this machine too.

    Parameters
    ----------
    name
        A folder, or a repository of the hub.
    revision
        A branch, tag or commit of the repository; its main branch if None.
    base_revision
        The same of the repository of an adapter's base model.

    Raises
    ------
    CheckpointError
        If there is none, or it is not complete.
    InvalidOption
        If the name can be no path, or a folder is given a revision.
    """
    if isinstance(name, Checkpoint):
        return name
    folder = _local_path(name)
    if folder.is_dir():
        if revision is not None:
            raise InvalidOption(f"A revision goes with a hub name; {name} is a local folder.")
        return _local_checkpoint(name, folder)
    if folder.exists():
        raise CheckpointError(f"{name} is a file; a checkpoint is a folder with a config.json.")
    if name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise CheckpointError(
            f"There is no folder {name}. Give the folder of a checkpoint, or a hub name such as "
            "vidore/colpali-v1.2."
        )
    return _hub_checkpoint(name, revision, base_revision)


def _local_path(name: str) -> Path:
    """Return the path a name means; raise InvalidOption if it can be none."""
    try:
        path = Path(name).expanduser()
        path.exists()
    except (OSError, RuntimeError) as error:  # too long a name, an unknown user's home
        raise InvalidOption(f"{name[:80]!r} is no encoder and no path: {error}.") from error
    return path


def _local_checkpoint(name: str, folder: Path) -> Checkpoint:
    adapter = _read(folder / "adapter_config.json")
    own = _read(folder / "config.json")
    folders, base, commit = [folder], None, None
    # Adapters may come with a copy of their base's configuration, and models with an adapter.
    if adapter is not None and (own is None or is_adapter(folder)):
        base = _base_of(name, adapter)
        found = _base_folder(name, folder, base)
        own = _read(found / "config.json")
        if Path(base).is_dir():
            folders.append(found)
        else:
            commit = found.name
    if own is None:
        raise CheckpointError(
            f"{name} is no checkpoint: it has neither a config.json nor an adapter_config.json "
            "whose base model has one."
        )
    if not has_weights(folder):
        raise CheckpointError(
            f"{name} has no weights, or not all of them: a checkpoint keeps them in *.safetensors."
        )
    fingerprint = _with_base(_fingerprint(folders), commit)
    colbert = _is_colbert(own, _read(folder / _SENTENCE_TRANSFORMERS))
    return Checkpoint(name, None, fingerprint, own, adapter, base, commit, is_colbert=colbert)


def _base_folder(name: str, folder: Path, base: str) -> Path:
    """Return the folder of a local adapter's base model, its own or one of the hub's cache."""
    if Path(base).is_dir():
        if has_weights(Path(base)):
            return Path(base)
        lacking = "which has no weights, or not all of them"
    elif is_downloaded(base) and (cached := cached_folder(base)) is not None:
        return cached
    else:
        lacking = "which is not on this machine"
    raise CheckpointError(
        f"{name} is an adapter on {base}, {lacking}. Save that model to a folder and put its path "
        f"as base_model_name_or_path into {folder / 'adapter_config.json'}."
    )


def _hub_checkpoint(name: str, revision: str | None, base_revision: str | None) -> Checkpoint:
    # A commit does not change: whoever has it need not ask.
    pinned = bool(_COMMIT.fullmatch(revision or ""))
    settled = pinned and is_downloaded(name, revision, base_revision)
    offline = settled or not is_reachable(name, revision)
    found = hub_file(name, "adapter_config.json", revision, local_only=offline)
    adapter = None if found is None else _read(found)
    base = base_commit = described = None
    if adapter is None:
        configured = hub_file(name, "config.json", revision, local_only=offline)
        described = hub_file(name, _SENTENCE_TRANSFORMERS, revision, local_only=offline)
    else:
        base = _base_of(name, adapter)
        configured = hub_file(base, "config.json", base_revision, local_only=offline)
        base_commit = None if configured is None else configured.parent.name
    config = None if configured is None else _read(configured)
    first = found or configured
    if config is None or first is None:
        if offline:
            raise CheckpointError(unreachable(name, base))
        raise CheckpointError(
            f"The repository {name} is no checkpoint: it has neither a config.json nor an "
            "adapter_config.json whose base model has one."
        )
    commit = first.parent.name
    fingerprint = _with_base(commit, base_commit)
    colbert = _is_colbert(config, None if described is None else _read(described))
    return Checkpoint(
        name, commit, fingerprint, config, adapter, base, base_commit, offline, colbert
    )


def _is_colbert(config: dict[str, Any], described: dict[str, Any] | None) -> bool:
    """Whether a model is a ColBERT, by its configuration and that of sentence-transformers."""
    if described is None:
        return "HF_ColBERT" in str(config.get("architectures"))
    # PyLate named no type before sentence-transformers 5, and always its two prefixes.
    kinds = ("ColBERT", "MultiVectorEncoder")
    return described.get("model_type") in kinds or "query_prefix" in described


def _with_base(fingerprint: str, base_commit: str | None) -> str:
    return fingerprint if base_commit is None else f"{fingerprint}-{base_commit[:16]}"


def _base_of(name: str, adapter: dict[str, Any]) -> str:
    base = adapter.get("base_model_name_or_path")
    if not base:
        raise CheckpointError(f"The adapter {name} does not name its base model.")
    return str(base)


def _read(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    # Brackets can be nested deeper than Python calls.
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}.") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} is no configuration: it holds a {type(content).__name__}.")
    return content


def _fingerprint(folders: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in _decisive_files(folders):
        digest.update(path.name.encode())
        digest.update(path.stat().st_size.to_bytes(8, "little"))
        for chunk in _content(path):
            digest.update(chunk)
    return digest.hexdigest()[:16]


def _decisive_files(folders: list[Path]) -> Iterator[Path]:
    for folder in folders:
        found = {
            path
            for pattern in _DECISIVE
            for path in (*folder.glob(pattern), *folder.glob(f"{_MODULES}/{pattern}"))
        }
        yield from sorted(path for path in found if path.is_file())


def _content(path: Path) -> Iterator[bytes]:
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= _READ_WHOLE:
            yield file.read()
            return
        for sample in range(_SAMPLES):
            file.seek(sample * (size - _SAMPLE_BYTES) // (_SAMPLES - 1))
            yield file.read(_SAMPLE_BYTES)


def refuse_other_kinds(checkpoint: Checkpoint, expected: str | None, example: str) -> None:
    """Raise CheckpointError if the configuration does not name the class expected."""
    if expected not in checkpoint.architectures:
        kinds = ", ".join(checkpoint.architectures) or checkpoint.model_type
        raise CheckpointError(
            f"{checkpoint.name} is {kinds} where {expected} was expected: take a checkpoint such "
            f"as {example}."
        )
