"""Files of the Hugging Face hub, and which of them are in its cache on this machine."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from visar.errors import CheckpointError, extra_needed

_logger = logging.getLogger(__name__)

# For the first answer of the hub. Who has a slower connection sets HF_HUB_ETAG_TIMEOUT.
_SECONDS_TO_ANSWER = 5.0
_CONFIGURATIONS = ("adapter_config.json", "config.json")


def unreachable(name: str, base: str | None = None) -> str:
    """Return the message for a checkpoint, and its base model, if the hub cannot be reached."""
    what = f"{name} or its base model {base}" if base else name
    return (
        f"The checkpoint {what} is not on this machine and the hub cannot be reached. Download it "
        f"where there is a network (`hf download {name}`), copy it here with the base model it "
        "names, and give the folder's path instead of the name."
    )


def is_reachable(name: str, revision: str | None) -> bool:
    """Whether the hub answers a request for a repository, whatever the answer.

    One request with a short timeout: the hub's own downloads try again for minutes where there is
    no network.
    """
    _hub()
    from huggingface_hub import constants, errors, get_hf_file_metadata, hf_hub_url

    chosen = "HF_HUB_ETAG_TIMEOUT" in os.environ
    patience = constants.HF_HUB_ETAG_TIMEOUT if chosen else _SECONDS_TO_ANSWER
    try:
        url = hf_hub_url(name, "config.json", revision=revision)
        get_hf_file_metadata(url, timeout=patience)
    except (errors.HfHubHTTPError, errors.HFValidationError):
        return True
    except Exception:  # of the HTTP client, which is another in every few versions
        return False
    return True


def hub_file(name: str, file: str, revision: str | None, *, local_only: bool) -> Path | None:
    """Return the path of a repository's file, downloaded unless ``local_only``.

    Its folder is named after the commit. None if the repository has no such file, or with
    ``local_only`` if it is not in the cache. Raises CheckpointError if the repository or revision
    does not exist, may not be read, or cannot be reached.
    """
    _hub()
    from huggingface_hub import errors, hf_hub_download

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
    except errors.HFValidationError as error:
        raise CheckpointError(
            f"{name!r} is no folder here and no name a repository can have: {error}"
        ) from error
    except (errors.HfHubHTTPError, OSError) as error:
        raise CheckpointError(f"{unreachable(name)} ({error})") from error


def fetch_file(name: str, file: str) -> Path:
    """Return the path of a repository's file: from the cache, or else downloaded.

    Raises CheckpointError if it cannot be had.
    """
    found = hub_file(name, file, None, local_only=True)
    if found is None and not is_reachable(name, None):
        raise CheckpointError(
            f"{name} is not on this machine and the hub cannot be reached. Run "
            f"`hf download {name}` where there is a network, and copy the hub's cache here."
        )
    found = found or hub_file(name, file, None, local_only=False)
    if found is None:
        raise CheckpointError(f"The repository {name} has no file {file}.")
    return found


def download(name: str, revision: str | None, files: Sequence[str]) -> Path:
    """Download the files of a repository that match patterns and are not cached; return the folder.

    Raises CheckpointError if the download fails, or there are no weights among the files.
    """
    _hub()
    from huggingface_hub import snapshot_download

    _logger.info("downloading %s", name)
    try:
        folder = Path(
            snapshot_download(
                name,
                revision=revision,
                allow_patterns=list(files),
                # The same weights for other programs. Parts of the model are in 1_Dense and such.
                ignore_patterns=["[!0-9]*/*.safetensors"],
                tqdm_class=None if _shown.get() else _hidden_bar(),
            )
        )
    except Exception as error:  # of the HTTP client too, which is another in every few versions
        raise CheckpointError(
            f"{name} could not be downloaded ({error}). Try again: what has arrived is kept."
        ) from error
    # If the hub fails half way, snapshot_download returns what is in the cache.
    if not has_weights(folder):
        raise CheckpointError(
            f"{name} has no weights in *.safetensors, or they could not be downloaded: try again."
        )
    return folder


def is_downloaded(name: str, revision: str | None = None, base_revision: str | None = None) -> bool:
    """Whether the weights of a repository, and of its base model, are in the hub's cache."""
    folder = cached_folder(name, revision)
    if folder is None or not has_weights(folder):
        return False
    if not is_adapter(folder):
        return True
    base = _json(folder / "adapter_config.json").get("base_model_name_or_path")
    return isinstance(base, str) and is_downloaded(base, base_revision)


def cached_folder(name: str, revision: str | None = None) -> Path | None:
    """Return the folder of a repository's revision in the hub's cache; None if it has none."""
    _hub()
    from huggingface_hub import errors, try_to_load_from_cache

    try:
        found = [try_to_load_from_cache(name, file, revision=revision) for file in _CONFIGURATIONS]
    except errors.HFValidationError:
        return None
    return next((Path(path).parent for path in found if isinstance(path, str)), None)


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter without its base model."""
    own = any(path.name != "adapter_model.safetensors" for path in folder.glob("*.safetensors"))
    return (folder / "adapter_config.json").exists() and not own


def has_weights(folder: Path) -> bool:
    """Whether a folder has a checkpoint's weights, all parts of them if they are in several."""
    indices = list(folder.glob("*.safetensors.index.json"))
    if not indices:
        return any(path.exists() for path in folder.glob("*.safetensors"))
    parts = {part for index in indices for part in _parts(_json(index).get("weight_map"))}
    return bool(parts) and all((folder / part).exists() for part in parts)


def _parts(weight_map: Any) -> Iterable[str]:
    return map(str, weight_map.values()) if isinstance(weight_map, dict) else ()


_shown = ContextVar("downloads are shown", default=False)


@contextlib.contextmanager
def downloads_shown() -> Iterator[None]:
    """Show the hub's progress bars for downloads started in this block, by this thread."""
    token = _shown.set(True)
    try:
        yield
    finally:
        _shown.reset(token)


@functools.cache
def _hidden_bar() -> type[Any]:
    from huggingface_hub.utils.tqdm import tqdm

    class HiddenBar(tqdm):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options | {"disable": True})  # type: ignore[no-untyped-call]

    return HiddenBar


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _hub() -> None:
    with extra_needed("A checkpoint of the Hugging Face hub", "colpali"):
        import huggingface_hub  # noqa: F401
