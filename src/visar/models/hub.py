"""Files on the Hugging Face hub and in its local cache."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from visar.errors import CheckpointError, extra_needed

_logger = logging.getLogger(__name__)

# Timeout for the hub's first response. HF_HUB_ETAG_TIMEOUT overrides it for slow connections.
_HUB_TIMEOUT = 5.0
_CONFIGURATIONS = ("adapter_config.json", "config.json")


def unreachable(name: str, base: str | None = None) -> str:
    """Return the error message for a missing checkpoint when the hub can't be reached."""
    what = f"{name} or its base model {base}" if base else name
    return (
        f"The checkpoint {what} is not on this machine and the hub can't be reached. Download it "
        f"on a machine with a network (`hf download {name}`), copy it here together with its base "
        "model, if any, and use the folder's path as the name."
    )


def is_reachable(name: str, revision: str | None) -> bool:
    """Return whether the hub responds to a request for a repository, even with an error.

    Sends one request with a short timeout, because huggingface_hub retries downloads for minutes
    when there is no network.
    """
    _require_hub()
    from huggingface_hub import constants, errors, get_hf_file_metadata, hf_hub_url

    is_set = "HF_HUB_ETAG_TIMEOUT" in os.environ
    timeout = constants.HF_HUB_ETAG_TIMEOUT if is_set else _HUB_TIMEOUT
    try:
        url = hf_hub_url(name, "config.json", revision=revision)
        get_hf_file_metadata(url, timeout=timeout)
    except (errors.HfHubHTTPError, errors.HFValidationError):
        return True
    except Exception:  # the HTTP client and its exceptions change between hub versions
        return False
    return True


def hub_file(name: str, file: str, revision: str | None, *, local_only: bool) -> Path | None:
    """Return the path of a repository's file, downloading it unless ``local_only`` is set.

    Its folder is named after the commit. Returns None if the repository has no such file or, with
    ``local_only``, if it isn't cached. Raises CheckpointError if the repository or revision
    doesn't exist, isn't accessible, or can't be reached.
    """
    _require_hub()
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
            f"The repository {name} is gated: accept its terms on its page, run `hf auth login`, "
            "and try again."
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise CheckpointError(
            f"{name} is neither a local folder nor a repository on the hub that you can access."
        ) from error
    except errors.EntryNotFoundError:
        return None
    except errors.HFValidationError as error:
        raise CheckpointError(
            f"{name!r} is neither a local folder nor a valid repository name: {error}"
        ) from error
    except (errors.HfHubHTTPError, OSError) as error:
        raise CheckpointError(f"{unreachable(name)} ({error})") from error


def fetch_file(name: str, file: str) -> Path:
    """Return the path of a repository's file, downloading it if it isn't cached.

    Raises CheckpointError if it isn't available.
    """
    found = hub_file(name, file, None, local_only=True)
    if found is None and not is_reachable(name, None):
        raise CheckpointError(
            f"{name} is not on this machine and the hub can't be reached. Run "
            f"`hf download {name}` on a machine with a network, and copy its hub cache here."
        )
    found = found or hub_file(name, file, None, local_only=False)
    if found is None:
        raise CheckpointError(f"The repository {name} has no file {file}.")
    return found


def download(name: str, revision: str | None, files: Sequence[str]) -> Path:
    """Download the files of a repository that match the patterns; return their folder.

    Cached files aren't downloaded again. Raises CheckpointError if the download fails or the files
    include no weights.
    """
    _require_hub()
    from huggingface_hub import snapshot_download

    _logger.info("downloading %s", name)
    try:
        folder = Path(
            snapshot_download(
                name,
                revision=revision,
                allow_patterns=list(files),
                # Skip copies of the weights for other programs, but not folders like 1_Dense.
                ignore_patterns=["[!0-9]*/*.safetensors"],
                tqdm_class=None if _show_progress.get() else _hidden_bar_class(),
            )
        )
    except Exception as error:  # the HTTP client and its exceptions change between hub versions
        raise CheckpointError(
            f"Downloading {name} failed: {error}. Try again; the download resumes where it stopped."
        ) from error
    # If the hub fails midway, snapshot_download returns the incomplete cached folder.
    if not has_weights(folder):
        raise CheckpointError(
            f"{name} has no *.safetensors weights, or downloading them failed: try again."
        )
    return folder


def is_downloaded(name: str, revision: str | None = None, base_revision: str | None = None) -> bool:
    """Return whether the weights of a repository, and of its base model, are cached."""
    folder = cached_folder(name, revision)
    if folder is None or not has_weights(folder):
        return False
    if not is_adapter(folder):
        return True
    base = _read_json(folder / "adapter_config.json").get("base_model_name_or_path")
    return isinstance(base, str) and is_downloaded(base, base_revision)


def cached_folder(name: str, revision: str | None = None) -> Path | None:
    """Return the folder of a repository's revision in the hub's cache; None if not cached."""
    _require_hub()
    from huggingface_hub import errors, try_to_load_from_cache

    try:
        found = [try_to_load_from_cache(name, file, revision=revision) for file in _CONFIGURATIONS]
    except errors.HFValidationError:
        return None
    return next((Path(path).parent for path in found if isinstance(path, str)), None)


def is_adapter(folder: Path) -> bool:
    """Return whether a folder holds an adapter without its base model."""
    has_base = any(
        path.name != "adapter_model.safetensors" for path in folder.glob("*.safetensors")
    )
    return (folder / "adapter_config.json").exists() and not has_base


def has_weights(folder: Path) -> bool:
    """Return whether a folder has all of a checkpoint's weights."""
    indices = list(folder.glob("*.safetensors.index.json"))
    if not indices:
        return any(path.exists() for path in folder.glob("*.safetensors"))
    maps = [_read_json(index).get("weight_map") for index in indices]
    parts = {str(part) for one in maps if isinstance(one, dict) for part in one.values()}
    return bool(parts) and all((folder / part).exists() for part in parts)


_show_progress = ContextVar("show download progress", default=False)


@contextlib.contextmanager
def show_downloads() -> Iterator[None]:
    """Show the hub's progress bars for downloads that this thread starts in the block."""
    token = _show_progress.set(True)
    try:
        yield
    finally:
        _show_progress.reset(token)


@functools.cache
def _hidden_bar_class() -> type[Any]:
    from huggingface_hub.utils.tqdm import tqdm

    class HiddenBar(tqdm):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options | {"disable": True})  # type: ignore[no-untyped-call]

    return HiddenBar


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _require_hub() -> None:
    with extra_needed("A checkpoint from the Hugging Face hub", "colpali"):
        import huggingface_hub  # noqa: F401
