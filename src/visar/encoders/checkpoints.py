"""Finding a checkpoint: in a local folder, or at the Hugging Face hub under the name given."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from visar.errors import CheckpointError, InvalidOption, MissingExtra

# Files that decide what a checkpoint's vectors are.
_DECISIVE = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "*.metadata", "*.py")
# Larger files are known by their size and samples: a start must not read gigabytes.
_READ_WHOLE = 256 << 20
_SAMPLES = 64
_SAMPLE_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that was found, and what its configuration says."""

    name: str
    """As the user gave it."""
    revision: str | None
    """The commit at the hub; None for a local folder."""
    fingerprint: str
    """Tells checkpoints apart: the commit, or a hash of the local files."""
    config: dict[str, Any]
    """Of the model; of an adapter's base model."""
    adapter: dict[str, Any] | None
    """The adapter's own configuration, if it is one."""

    @property
    def is_local(self) -> bool:
        return self.revision is None

    @property
    def model_type(self) -> str:
        return str(self.config.get("model_type", ""))

    @property
    def architectures(self) -> list[str]:
        return [str(name) for name in self.config.get("architectures") or []]

    @property
    def adapted_modules(self) -> str:
        """What the adapter changes, as its configuration says it."""
        adapter = self.adapter or {}
        return f"{adapter.get('target_modules')} {adapter.get('modules_to_save')}"


def is_checkpoint_name(name: str) -> bool:
    """Whether a name means a checkpoint: a path that is there, or a repository or path by form."""
    return "/" in name or Path(name).expanduser().exists()


def find_checkpoint(name: str | Checkpoint, revision: str | None = None) -> Checkpoint:
    """Find a checkpoint by local path or hub name; one that was found is given back.

    A local folder never leads to a download: the base model that an adapter names must be on
    this machine too.
    """
    if isinstance(name, Checkpoint):
        return name
    folder = Path(name).expanduser()
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
    return _hub_checkpoint(name, revision)


def _local_checkpoint(name: str, folder: Path) -> Checkpoint:
    adapter = _read(folder / "adapter_config.json")
    own = _read(folder / "config.json")
    folders = [folder]
    if own is None and adapter is not None:
        base = _base_of(name, adapter)
        if Path(base).is_dir():
            folders.append(Path(base))
        else:
            cached = _hub_file(base, "config.json", None, local_only=True)
            if cached is None:
                raise CheckpointError(
                    f"{name} is an adapter on {base}, which is not on this machine. Save that "
                    f"model to a folder and put its path as base_model_name_or_path into "
                    f"{folder / 'adapter_config.json'}."
                )
            folders.append(cached.parent)
        own = _read(folders[-1] / "config.json")
    if own is None:
        raise CheckpointError(
            f"{name} is no checkpoint: it has neither a config.json nor an adapter_config.json "
            "whose base model has one."
        )
    if not any(folder.glob("*.safetensors")):
        raise CheckpointError(f"{name} has no weights: a checkpoint keeps them in *.safetensors.")
    return Checkpoint(name, None, _fingerprint(folders), own, adapter)


def _hub_checkpoint(name: str, revision: str | None) -> Checkpoint:
    found = _hub_file(name, "adapter_config.json", revision)
    adapter = None if found is None else _read(found)
    configured = _hub_file(name, "config.json", revision)
    if configured is None and adapter is not None:
        configured = _hub_file(_base_of(name, adapter), "config.json", None)
    config = None if configured is None else _read(configured)
    first = found or configured
    if config is None or first is None:
        raise CheckpointError(
            f"The repository {name} is no checkpoint: it has neither a config.json nor an "
            "adapter_config.json whose base model has one."
        )
    commit = first.parent.name
    return Checkpoint(name, commit, commit, config, adapter)


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
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}.") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} is no configuration: it holds a {type(content).__name__}.")
    return content


def _hub_file(
    name: str, file: str, revision: str | None, *, local_only: bool = False
) -> Path | None:
    """A small file of a repository; None where the repository has none, or nothing is cached."""
    try:
        from huggingface_hub import errors, hf_hub_download
    except ImportError as error:
        raise MissingExtra("A checkpoint of the Hugging Face hub", "colpali") from error
    try:
        return Path(hf_hub_download(name, file, revision=revision, local_files_only=local_only))
    except errors.LocalEntryNotFoundError as error:
        if local_only:
            return None
        raise CheckpointError(unreachable(name)) from error
    except errors.RevisionNotFoundError as error:
        raise CheckpointError(f"The repository {name} has no revision {revision!r}.") from error
    except errors.GatedRepoError as error:
        raise CheckpointError(
            f"The repository {name} is open only to those who accepted its terms: accept them "
            "on its page, run `hf auth login`, and try again."
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise CheckpointError(
            f"There is no repository {name} at the hub that you may read, and no such folder here."
        ) from error
    except errors.EntryNotFoundError:
        return None
    except (errors.HfHubHTTPError, errors.HFValidationError, OSError) as error:
        raise CheckpointError(f"{unreachable(name)} ({error})") from error


def unreachable(name: str) -> str:
    """What to do when the hub cannot be reached."""
    return (
        f"The checkpoint {name} is not on this machine and the hub cannot be reached. Download it "
        f"where there is a network (`hf download {name}`), copy it here with the base model it "
        "names, and give the folder's path instead of the name."
    )


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
        yield from sorted({path for pattern in _DECISIVE for path in folder.glob(pattern)})


def _content(path: Path) -> Iterator[bytes]:
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= _READ_WHOLE:
            yield file.read()
            return
        for sample in range(_SAMPLES):
            file.seek(sample * (size - _SAMPLE_BYTES) // (_SAMPLES - 1))
            yield file.read(_SAMPLE_BYTES)
