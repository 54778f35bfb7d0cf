"""List encoders, and create one by name.

Names have the syntax of `visar.encoders.names.GRAMMAR`. NAME is one of `visar.encoders.records`,
an entry point in the group ``visar.encoders`` of an installed package, ``module:Class``, the folder
or hub name of a checkpoint, ``KNOWN=CHECKPOINT`` for one that is declared to be a published
encoder, or the address of a service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from visar.encoders.encoder import Encoder
from visar.encoders.names import EncoderName, no_authors_mode, parse_name
from visar.encoders.records import IMAGES, PUBLISHED, RECORDS, TEXT, VISRAG, VISUAL, EncoderRecord
from visar.errors import EncoderUnavailable, InvalidOption
from visar.models.checkpoints import (
    COLBERT,
    MULTI_VECTOR,
    Checkpoint,
    find_checkpoint,
    is_checkpoint_name,
)
from visar.models.devices import check_device
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


def available_encoders() -> list[EncoderRecord]:
    """Return all encoders without importing them: the default first, then plugins last."""
    plugins = (point for name, point in entry_points(GROUP).items() if name not in RECORDS)
    return [
        *RECORDS.values(),
        *(
            EncoderRecord(point.name, f"{point.value}, from {package_of(point)}", point.value)
            for point in plugins
        ),
    ]


def get_encoder(
    encoder: str | Encoder = "embedded", *, device: str = "auto", trust_remote_code: bool = False
) -> Encoder:
    """Create an encoder by name. Its model is loaded on first use.

    Parameters
    ----------
    encoder
        Name with the syntax of `visar.encoders.names.GRAMMAR`. NAME is a name listed by
        ``visar encoders``, the folder or hub name of a checkpoint (``colpali=FOLDER`` to declare
        what it is), ``module:Class``, or an address. ``@REVISION`` works with hub checkpoints.
        ``+patches`` leaves out the vectors of a visual encoder's instruction. ``+authors`` runs
        ColModernVBERT as the paper's authors did. ``+dim64`` keeps the first 64 components of each
        vector, ``+pool3`` about a third of a page's vectors, ``+int8`` and ``+bits`` store 8 bits
        or 1 bit per component. An encoder object is returned unchanged.
    device
        "auto", "cpu", "cuda" or "mps".
    trust_remote_code
        Allow VisRAG-Ret to run the code in its checkpoint.

    Raises
    ------
    InvalidOption
        If the encoder is unknown or doesn't support an option.
    EncoderUnavailable
        If something it needs is not installed.
    CheckpointError
        If the checkpoint doesn't exist.
    """
    if not isinstance(encoder, str):
        return encoder
    check_device(device)
    name = parse_name(encoder)
    if name.pool is not None and name.is_vllm:
        raise InvalidOption(
            "Encoders served by vLLM don't support +poolN: vLLM doesn't distinguish patch vectors "
            "from instruction vectors. Remove +poolN."
        )
    unreduced = _unreduced(name, device, trust_remote_code=trust_remote_code)
    if not name.is_reduced:
        return unreduced
    from visar.encoders.reduced import ReducedEncoder

    return ReducedEncoder(unreduced, dimension=name.dim, pool=name.pool, coding=name.coding)


def _unreduced(name: EncoderName, device: str, *, trust_remote_code: bool) -> Encoder:
    if name.kind is not None or name.base in PUBLISHED:
        return _published(name, device, trust_remote_code=trust_remote_code)
    if name.is_address:
        return _at_address(name)
    if name.base in RECORDS:
        _refuse_unavailable(RECORDS[name.base])
        return _from_factory(RECORDS[name.base].factory, name, device)
    if name.base in entry_points(GROUP):
        return _from_factory(entry_points(GROUP)[name.base], name, device)
    if is_object_name(name.base) and not is_checkpoint_name(name.base):
        return _from_factory(name.base, name, device)
    return _from_checkpoint(name, device, trust_remote_code=trust_remote_code)


def _published(name: EncoderName, device: str, *, trust_remote_code: bool) -> Encoder:
    """Create a published encoder, or that of a checkpoint that is declared to be one."""
    record = PUBLISHED.get(name.kind or name.base)
    if record is None:
        raise unknown_name("encoder", str(name.kind), PUBLISHED, " Use the form NAME=FOLDER.")
    if name.is_address:
        raise InvalidOption(
            f"The encoder at an address can't be declared: remove {name.kind}= in front of it."
        )
    options: dict[str, Any] = {"expected": record.model_class, "device": device}
    source: str | Checkpoint = record.repository
    if name.kind is not None:
        source = find_checkpoint(name.base, name.revision)
    else:
        options["dimension"] = record.dimension
        options["revision"] = name.revision or record.revision
        options["base_revision"] = None if name.revision else record.base_revision
    return _load_checkpoint(
        name, record.factory, source, trust_remote_code=trust_remote_code, **options
    )


def _at_address(name: EncoderName) -> Encoder:
    if name.patches or name.authors:
        part = "+patches" if name.patches else "+authors"
        raise InvalidOption(
            f"An address can't have {part}: set it where the encoder is served, such as "
            f"`visar encoders serve colmodernvbert{part}`."
        )
    if name.revision is not None:
        raise InvalidOption(
            "An address can't have a revision, because the service decides which one it runs. "
            "Write an @ in a path as %40."
        )
    if name.is_vllm:
        from visar.encoders.vllm import VllmEncoder

        return VllmEncoder(name.base.removeprefix("vllm+"))
    from visar.encoders.remote import RemoteEncoder

    return RemoteEncoder(name.base)


def _from_factory(factory: str | EntryPoint, name: EncoderName, device: str) -> Encoder:
    _refuse_options(name)
    if device not in ("auto", "cpu") and not accepts_device(load(factory)):
        raise InvalidOption(f"The encoder {name.base!r} can't use a device: remove {device!r}.")
    encoder: Encoder = make(factory, "encoder", name.base, device, EncoderUnavailable)
    if not all(hasattr(encoder, method) for method in ("encode_pages", "encode_query")):
        raise InvalidOption(
            f"{name.base} returned a {type(encoder).__name__}, which isn't an encoder. It must "
            "return an object that implements visar.encoders.encoder.Encoder."
        )
    return encoder


def _from_checkpoint(name: EncoderName, device: str, *, trust_remote_code: bool) -> Encoder:
    if not is_checkpoint_name(name.base):
        raise unknown_name(
            "encoder",
            name.base,
            [one.name for one in available_encoders()],
            " Or give a checkpoint's folder, a hub name such as vidore/colpali-v1.3, or your own "
            "module:Class.",
        )
    from visar.encoders.onnx_visual import OnnxVisualEncoder, is_exported

    if is_exported(name.base):
        _refuse_options(name, "patches")
        return OnnxVisualEncoder(
            name.unreduced, name.base, instruction_tokens=not name.patches, device=device
        )
    checkpoint = find_checkpoint(name.base, name.revision)
    factory = _factory_for(checkpoint)
    return _load_checkpoint(
        name, factory, checkpoint, trust_remote_code=trust_remote_code, device=device
    )


def _factory_for(checkpoint: Checkpoint) -> str:
    """Return the encoder class for a checkpoint, preferring its authors' code."""
    names = checkpoint.architectures
    authors = (one for one in PUBLISHED.values() if one.factory in (VISRAG, VISUAL))
    found = next((one.factory for one in authors if one.model_class in names), None)
    return found or {COLBERT: TEXT, MULTI_VECTOR: IMAGES}.get((names or [""])[-1], VISUAL)


def _load_checkpoint(
    name: EncoderName,
    factory: str,
    source: str | Checkpoint,
    *,
    trust_remote_code: bool,
    **options: Any,
) -> Encoder:
    """Create the encoder of a checkpoint, with the options that its class supports."""
    _refuse_options(name, *("patches", "authors") if factory == VISUAL else (), "revision")
    known = name.base if name.base in PUBLISHED else name.unreduced
    _refuse_unavailable(EncoderRecord(known, "", factory))
    if factory == VISRAG:
        options["trust_remote_code"] = trust_remote_code
    if factory == VISUAL:
        options |= {"instruction_tokens": not name.patches, "as_authors": name.authors}
    encoder: Encoder = load(factory)(name.unreduced, source, **options)
    return encoder


def _refuse_options(name: EncoderName, *supported: str) -> None:
    """Raise InvalidOption for the suffixes and the revision that an encoder doesn't support."""
    if name.patches and "patches" not in supported:
        raise InvalidOption(
            f"{name.base} has no instruction vectors for +patches to leave out: remove +patches. "
            "It only works with the visual encoders of colpali-engine."
        )
    if name.authors and "authors" not in supported:
        raise no_authors_mode(name.unreduced)
    if name.revision is not None and "revision" not in supported:
        raise InvalidOption(
            f"{name.base!r} has no revisions, only checkpoints on the hub do: remove "
            f"@{name.revision}."
        )


def _refuse_unavailable(record: EncoderRecord) -> None:
    if missing := record.missing:
        raise EncoderUnavailable(
            f"The encoder {record.name!r} requires {', '.join(missing)}: {record.remedy}"
        )
