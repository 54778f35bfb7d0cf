"""Find checkpoints in local folders and on the Hugging Face hub."""

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

# Files that determine a checkpoint's output.
_DECISIVE = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "*.metadata", "*.py")
# Larger files are hashed by size and samples, so that startup doesn't read gigabytes.
_READ_WHOLE = 256 << 20
_SAMPLES = 64
_SAMPLE_BYTES = 64 << 10
_COMMIT = re.compile("[0-9a-f]{40}")
# Subfolders of sentence-transformers models, such as 1_Dense, are parts of the model.
_MODULES = "[0-9]*_*"
_SENTENCE_TRANSFORMERS = "config_sentence_transformers.json"

COLBERT = "ColBERT"
"""The architecture name of every ColBERT: Stanford's, PyLate's or sentence-transformers'."""
MULTI_VECTOR = "MultiVectorEncoder"
"""The architecture name of the other multi-vector models, which read images."""
_MULTI_VECTOR_CLASSES = ("HF_ColBERT", "ColPaliForRetrieval")
# transformers' own ColQwen2 passes patches without rows and columns to its model, and
# sentence-transformers passes images to its ColModernVBERT without the surrounding text.
_UNSUPPORTED = ("colqwen2", "colmodernvbert")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint and its configuration."""

    name: str
    """The folder or hub name, as the user gave it."""
    revision: str | None
    """The commit on the hub; None for a local folder."""
    fingerprint: str
    """A unique identifier: the commit or a hash of the local files, plus the commit of a base
    model from the hub."""
    config: dict[str, Any]
    """The configuration of the model; for an adapter, of its base model."""
    adapter: dict[str, Any] | None
    """The adapter's configuration; None if the checkpoint isn't an adapter."""
    base: str | None = None
    """The folder or hub name of the adapter's base model."""
    base_revision: str | None = None
    """The commit of the base model on the hub; None if it is a local folder."""
    is_offline: bool = False
    """True if only cached files may be used, without contacting the hub."""
    is_multi_vector: bool = False
    """True if sentence-transformers can load it as a multi-vector model."""

    @property
    def is_local(self) -> bool:
        return self.revision is None

    def folder(self) -> str:
        """Return its local folder, downloading it and its base model if needed.

        Load the model from this folder, never by its hub name, and its base model at
        ``base_revision``: the main branch may have changed since the fingerprint was taken. Raises
        CheckpointError if files are missing and can't be downloaded.
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
        """The name without parent folders, and the fingerprint."""
        name = Path(self.name).resolve().name if self.is_local else self.name
        return f"{name}@{self.fingerprint}"

    @property
    def model_type(self) -> str:
        return str(self.config.get("model_type", ""))

    @property
    def architectures(self) -> list[str]:
        """The classes named in the configuration, with `COLBERT` or `MULTI_VECTOR` appended."""
        architectures = self.config.get("architectures")
        names = [str(name) for name in architectures] if isinstance(architectures, list) else []
        if self.is_multi_vector:
            reads_images = "vision_config" in self.config or "vlm_config" in self.config
            names.append(MULTI_VECTOR if reads_images else COLBERT)
        return names

    @property
    def adapted_modules(self) -> str:
        """The modules that the adapter changes, as text from its configuration."""
        adapter = self.adapter or {}
        return f"{adapter.get('target_modules')} {adapter.get('modules_to_save')}"


def is_checkpoint_name(name: str) -> bool:
    """Return whether a name refers to a checkpoint: it has a slash or is an existing path."""
    return "/" in name or _local_path(name).exists()


def find_checkpoint(
    name: str | Checkpoint, revision: str | None = None, base_revision: str | None = None
) -> Checkpoint:
    """Find a checkpoint by local path or hub name; return a Checkpoint unchanged.

    A local folder never triggers a download: an adapter's base model must be on this machine too.
    Revisions are branches, tags or commits on the hub, by default of the main branch. Raises
    CheckpointError if the checkpoint doesn't exist or is incomplete, and InvalidOption if the name
    isn't a valid path, or a revision is given for a folder.
    """
    if isinstance(name, Checkpoint):
        return name
    folder = _local_path(name)
    if folder.is_dir():
        if revision is not None:
            raise InvalidOption(
                f"{name} is a local folder, which has no revisions: remove @{revision}."
            )
        return _local_checkpoint(name, folder)
    if folder.exists():
        raise CheckpointError(f"{name} is a file: give a checkpoint's folder, with a config.json.")
    if name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise CheckpointError(
            f"No folder {name}. Give a checkpoint's folder, or a hub name such as "
            "vidore/colpali-v1.2."
        )
    return _hub_checkpoint(name, revision, base_revision)


def _local_path(name: str) -> Path:
    """Return a name as a path; raise InvalidOption if it isn't a valid one."""
    try:
        path = Path(name).expanduser()
        path.exists()
    except (OSError, RuntimeError) as error:  # name too long, or ~user of an unknown user
        raise InvalidOption(f"{name[:80]!r} is neither an encoder nor a path: {error}.") from error
    return path


def _local_checkpoint(name: str, folder: Path) -> Checkpoint:
    adapter = _read_config(folder / "adapter_config.json")
    own = _read_config(folder / "config.json")
    folders, base, commit = [folder], None, None
    # An adapter may include a copy of its base's configuration, and a full model an adapter's.
    if adapter is not None and (own is None or is_adapter(folder)):
        base = _base_of(name, adapter)
        found = _base_folder(name, folder, base)
        own = _read_config(found / "config.json")
        if Path(base).is_dir():
            folders.append(found)
        else:
            commit = found.name
    if own is None:
        raise CheckpointError(
            f"{name} isn't a checkpoint: it has no config.json, and no adapter_config.json whose "
            "base model has one."
        )
    if not has_weights(folder):
        raise CheckpointError(f"{name} is incomplete: some or all *.safetensors files are missing.")
    fingerprint = _with_base(_fingerprint(folders), commit)
    multi_vector = _is_multi_vector(own, _read_config(folder / _SENTENCE_TRANSFORMERS))
    return Checkpoint(
        name, None, fingerprint, own, adapter, base, commit, is_multi_vector=multi_vector
    )


def _base_folder(name: str, folder: Path, base: str) -> Path:
    """Return the folder of a local adapter's base model, which may be in the hub's cache."""
    if Path(base).is_dir():
        if has_weights(Path(base)):
            return Path(base)
        problem = "which has no weights or only some of them"
    elif is_downloaded(base) and (cached := cached_folder(base)) is not None:
        return cached
    else:
        problem = "which isn't on this machine"
    raise CheckpointError(
        f"{name} is an adapter for {base}, {problem}. Save that model to a folder and set "
        f"base_model_name_or_path to its path in {folder / 'adapter_config.json'}."
    )


def _hub_checkpoint(name: str, revision: str | None, base_revision: str | None) -> Checkpoint:
    # A commit never changes, so a downloaded one needs no request.
    is_commit = bool(_COMMIT.fullmatch(revision or ""))
    is_cached = is_commit and is_downloaded(name, revision, base_revision)
    offline = is_cached or not is_reachable(name, revision)
    found = hub_file(name, "adapter_config.json", revision, local_only=offline)
    adapter = None if found is None else _read_config(found)
    base = base_commit = modules = None
    if adapter is None:
        configured = hub_file(name, "config.json", revision, local_only=offline)
        modules = hub_file(name, _SENTENCE_TRANSFORMERS, revision, local_only=offline)
    else:
        base = _base_of(name, adapter)
        configured = hub_file(base, "config.json", base_revision, local_only=offline)
        base_commit = None if configured is None else configured.parent.name
    config = None if configured is None else _read_config(configured)
    first = found or configured
    if config is None or first is None:
        if offline:
            raise CheckpointError(unreachable(name, base))
        raise CheckpointError(
            f"The repository {name} isn't a checkpoint: it has no config.json, and no "
            "adapter_config.json whose base model has one."
        )
    commit = first.parent.name
    fingerprint = _with_base(commit, base_commit)
    multi_vector = _is_multi_vector(config, None if modules is None else _read_config(modules))
    return Checkpoint(
        name, commit, fingerprint, config, adapter, base, base_commit, offline, multi_vector
    )


def _is_multi_vector(config: dict[str, Any], modules: dict[str, Any] | None) -> bool:
    """Return whether sentence-transformers loads a model as multi-vector.

    ``modules`` is the content of its config_sentence_transformers.json, if any.
    """
    if config.get("model_type") in _UNSUPPORTED:
        return False
    if modules is None:
        return any(name in str(config.get("architectures")) for name in _MULTI_VECTOR_CLASSES)
    # Before sentence-transformers 5, PyLate saved prefixes but no model type.
    types = (COLBERT, MULTI_VECTOR)
    return modules.get("model_type") in types or "query_prefix" in modules


def _with_base(fingerprint: str, base_commit: str | None) -> str:
    return fingerprint if base_commit is None else f"{fingerprint}-{base_commit[:16]}"


def _base_of(name: str, adapter: dict[str, Any]) -> str:
    base = adapter.get("base_model_name_or_path")
    if not base:
        raise CheckpointError(f"The adapter {name} has no base_model_name_or_path: add it.")
    return str(base)


def _read_config(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    # RecursionError: the JSON is nested too deeply.
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"Can't read {path}: {error}.") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} holds a {type(content).__name__}, not a JSON object.")
    return content


def _fingerprint(folders: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in _decisive_files(folders):
        digest.update(path.name.encode())
        digest.update(path.stat().st_size.to_bytes(8, "little"))
        for chunk in _sampled_content(path):
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


def _sampled_content(path: Path) -> Iterator[bytes]:
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= _READ_WHOLE:
            yield file.read()
            return
        for sample in range(_SAMPLES):
            file.seek(sample * (size - _SAMPLE_BYTES) // (_SAMPLES - 1))
            yield file.read(_SAMPLE_BYTES)


def refuse_other_kinds(checkpoint: Checkpoint, expected: str | None, example: str) -> None:
    """Raise CheckpointError if the configuration doesn't name the expected class."""
    if expected not in checkpoint.architectures:
        kinds = ", ".join(checkpoint.architectures) or checkpoint.model_type
        raise CheckpointError(
            f"{checkpoint.name} is {kinds}, not {expected}: use a checkpoint such as {example}."
        )
