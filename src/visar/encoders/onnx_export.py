"""Export visual encoders to ONNX, for `visar.encoders.onnx_visual`.

Exporting requires torch and colpali-engine; using the exported encoder doesn't.
"""

from __future__ import annotations

import functools
import hashlib
import json
import tempfile
import warnings
from pathlib import Path
from typing import Any

from visar.encoders.names import parse_name
from visar.encoders.onnx_visual import (
    MANIFEST,
    TEXT,
    TOKENIZER,
    VISION,
    Manifest,
    Precision,
    Tiling,
)
from visar.encoders.registry import get_encoder
from visar.encoders.visual import VisualEncoder
from visar.errors import CheckpointError, InvalidOption
from visar.files import atomic_path
from visar.models.checkpoints import Checkpoint
from visar.models.onnx import DOMAIN, quantize_dynamically
from visar.serialization import to_plain

_CLASSES = ("ColModernVBert", "ColIdefics3")
_ATTENTION = "visar_onnx"
_OPSET = 20  # the first with GELU as one operation
# transformers' Idefics3ImageProcessor rescales pages that are larger than this.
_LARGEST_EDGE = 4096
# The last operators of both graphs aren't quantized: 8 bits would turn NaN into finite values and
# hide failed pages.
_UNQUANTIZED = ("/connector/", "/projection/")
# Arbitrary: the graph accepts any length.
_SAMPLE_TOKENS = 16


def default_folder(name: str) -> Path:
    """Return the default folder to export an encoder to.

    >>> default_folder("colmodernvbert=./mine/").as_posix()
    'mine-int8'
    """
    return Path(f"{Path(parse_name(name).base).name}-int8")


def export_encoder(name: str, folder: Path, precision: Precision = "int8") -> Manifest:
    """Export a ColModernVBERT or ColSmol encoder to a folder that can be used as an encoder.

    Parameters
    ----------
    name
        Published encoder, hub name or folder of a checkpoint, or ``KNOWN=FOLDER``.
    folder
        Folder to create atomically. It must not exist.
    precision
        "int8" for 8-bit weights (one scale per channel) and 8-bit activations.

    Raises
    ------
    InvalidOption
        If the folder exists, or the encoder is from another family or has a suffix such as
        ``+patches``.
    CheckpointError
        If the checkpoint doesn't exist or uses different image preprocessing.
    """
    folder = folder.expanduser()
    if folder.exists():
        raise InvalidOption(f"{folder} already exists. Delete it or choose another with --to.")
    encoder = _exportable(name)
    checkpoint, loaded = encoder.load_model()
    model, processor = loaded.model, loaded.processor
    tiling = _tiling(checkpoint, model, processor.image_processor)
    _prepare(model, tiling.side)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(folder) as part, tempfile.TemporaryDirectory(prefix="visar-") as scratch:
        part.mkdir()
        _write_graphs(model, tiling.side, part, Path(scratch), precision)
        (part / TOKENIZER).write_text(
            processor.tokenizer.backend_tokenizer.to_str(), encoding="utf-8"
        )
        manifest = Manifest(
            model_class=type(model).__name__,
            source=checkpoint.identity,
            fingerprint=checkpoint.fingerprint,
            precision=precision,
            dimension=model.dim,
            tiling=tiling,
            image_token=processor.image_token,
            tokens_per_tile=processor.image_seq_len,
            page_prompt=processor.visual_prompt_prefix,
            question_prefix=processor.query_prefix,
            question_suffix=processor.query_augmentation_token * 10,
            vision_sha256=_sha256(part / VISION),
            text_sha256=_sha256(part / TEXT),
            tokenizer_sha256=_sha256(part / TOKENIZER),
        )
        content = json.dumps(to_plain(manifest), indent=1, ensure_ascii=False)
        (part / MANIFEST).write_text(content, encoding="utf-8")
    return manifest


def _exportable(name: str) -> VisualEncoder:
    parts = parse_name(name)
    if parts.is_reduced or parts.patches or parts.authors:
        raise InvalidOption(
            f"Can't export {name} with its + suffixes: export without them, and add them to the "
            "name of the exported folder instead."
        )
    encoder = get_encoder(name, device="cpu")
    if not isinstance(encoder, VisualEncoder) or encoder.model_class not in _CLASSES:
        raise InvalidOption(
            f"Can't export {name}: only ColModernVBERT and ColSmol are supported, such as "
            "colmodernvbert or colsmol-256m."
        )
    return encoder


def _tiling(checkpoint: Checkpoint, model: Any, images: Any) -> Tiling:
    """Return the tiling of pages; raise CheckpointError if its preprocessing isn't supported."""
    side = images.max_image_size["longest_edge"]
    edge = images.size["longest_edge"]
    is_supported = (
        images.do_resize
        and images.do_image_splitting
        and images.do_rescale
        and images.do_normalize
        and abs(images.rescale_factor * 255 - 1) < 1e-6
        and side == model.config.vision_config.image_size
        and edge <= _LARGEST_EDGE
    )
    if not is_supported:
        raise CheckpointError(
            f"Can't export {checkpoint.name}: its image preprocessing differs from that of "
            "ColModernVBERT and ColSmol."
        )
    return Tiling(
        side, edge, int(images.resample), tuple(images.image_mean), tuple(images.image_std)
    )


def _prepare(model: Any, side: int) -> None:
    """Replace parts of the model that can't be traced, or are slow when traced."""
    import torch
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(_ATTENTION, _attention)
    # Without padding, only layers with a sliding window need a mask, and `_attention` adds it.
    AttentionMaskInterface.register(_ATTENTION, lambda *_args, **_options: None)
    model.set_attn_implementation(_ATTENTION)
    model.config.text_config.use_cache = False
    vision = model.model.vision_model
    if type(vision).__name__ == "Idefics3VisionTransformer":
        # It computes patch positions for images of any shape, but tiles all have the same shape.
        outputs: list[Any] = []
        table = vision.embeddings.position_embedding
        hook = table.register_forward_hook(lambda _module, _ids, output: outputs.append(output))
        pixels = torch.zeros(1, 3, side, side)
        count = side // vision.patch_size
        with torch.no_grad():
            vision.embeddings(pixels, torch.ones(1, count, count, dtype=torch.bool))
        hook.remove()
        vision.embeddings.forward = functools.partial(
            _embed_tile, vision.embeddings.patch_embedding, outputs[0]
        )


def _embed_tile(
    patch_embedding: Any, positions: Any, pixel_values: Any, patch_attention_mask: Any
) -> Any:
    del patch_attention_mask
    return patch_embedding(pixel_values).flatten(2).transpose(1, 2) + positions


@functools.cache
def _attention_operation() -> Any:
    """Return attention as a single operator, which is exported as onnxruntime's."""
    import torch
    from torch.onnx import symbolic_helper, utils

    def attend(query: Any, key: Any, value: Any, heads: int, scale: float, causal: bool) -> Any:
        q, k, v = (side.unflatten(-1, (heads, -1)).transpose(1, 2) for side in (query, key, value))
        mixed = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, scale=scale, is_causal=causal
        )
        return mixed.transpose(1, 2).flatten(2).contiguous()

    @symbolic_helper.parse_args("v", "v", "v", "i", "f", "b")
    def symbol(
        graph: Any, query: Any, key: Any, value: Any, heads: int, scale: float, causal: bool
    ) -> Any:
        attributes = {"num_heads_i": heads, "scale_f": scale, "unidirectional_i": int(causal)}
        node = graph.op(f"{DOMAIN}::MultiHeadAttention", query, key, value, **attributes)
        return node.setType(query.type())

    name = "visar::attention"
    schema = "(Tensor q, Tensor k, Tensor v, int heads, float scale, bool causal) -> Tensor"
    operation = torch.library.custom_op(name, attend, mutates_args=(), schema=schema)
    utils.register_custom_op_symbolic(name, symbol, _OPSET)
    return operation


def _attention(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    _mask: Any,
    *,
    scaling: float,
    sliding_window: int | None = None,
    **_options: Any,
) -> tuple[Any, None]:
    """Compute attention as transformers calls it: (1, heads, tokens, size) to (1, tokens, …)."""
    import torch

    heads, groups = query.shape[1], getattr(module, "num_key_value_groups", 1)
    if groups > 1:
        key, value = (side.repeat_interleave(groups, dim=1) for side in (key, value))
    if sliding_window is not None:
        # Positions are computed from the tokens, so that the graph accepts any number of them.
        position = torch.ones_like(query[0, 0, :, 0]).cumsum(0)
        is_far = (position[:, None] - position[None]).abs() >= sliding_window
        products = (query * scaling) @ key.transpose(-1, -2)
        shares = products.masked_fill(is_far, torch.finfo(query.dtype).min).softmax(-1)
        return (shares @ value).transpose(1, 2), None
    joined = (side.transpose(1, 2).flatten(2) for side in (query, key, value))
    mixed = _attention_operation()(*joined, heads, scaling, bool(module.is_causal))
    return mixed.unflatten(-1, (heads, -1)), None


def _write_graphs(model: Any, side: int, folder: Path, scratch: Path, precision: Precision) -> None:
    import torch

    class Vision(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.vision = model.model.vision_model
            self.connector = model.model.connector

        def forward(self, pixels: Any) -> Any:
            mask = torch.ones(1, side, side, dtype=torch.bool)
            states = self.vision(pixel_values=pixels, patch_attention_mask=mask)
            return self.connector(states.last_hidden_state)[0]

    class Text(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.text = model.model.text_model
            projections = [getattr(model, name, None) for name in ("custom_text_proj", "linear")]
            self.projection = next(one for one in projections if one is not None)

        def forward(self, ids: Any, features: Any) -> Any:
            words = self.text.get_input_embeddings()(ids)
            is_image = ids == model.config.image_token_id
            inputs = torch.where(is_image[:, None], features, words)
            positions = torch.ones_like(ids).cumsum(0) - 1
            states = self.text(inputs_embeds=inputs[None], position_ids=positions[None])
            vectors = self.projection(states.last_hidden_state)[0]
            return vectors / vectors.norm(dim=-1, keepdim=True)

    size = model.config.text_config.hidden_size
    ids = torch.zeros(_SAMPLE_TOKENS, dtype=torch.int64)
    samples: dict[str, tuple[Any, dict[str, Any]]] = {
        VISION: (Vision(), {"pixels": torch.zeros(1, 3, side, side)}),
        TEXT: (Text(), {"ids": ids, "features": torch.zeros(_SAMPLE_TOKENS, size)}),
    }
    for file, (module, inputs) in samples.items():
        plain = scratch / file if precision == "int8" else folder / file
        with warnings.catch_warnings(), torch.no_grad():
            # Warnings about the deprecated exporter, and about sizes that are constant here.
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module.eval(),
                tuple(inputs.values()),
                plain,
                dynamo=False,
                opset_version=_OPSET,
                custom_opsets={DOMAIN: 1},
                input_names=list(inputs),
                output_names=["output"],
                dynamic_axes={} if file == VISION else {name: {0: "tokens"} for name in inputs},
            )
        if precision == "int8":
            # The word embeddings aren't quantized: they are fast, and one scale isn't precise.
            quantize_dynamically(plain, folder / file, ["MatMul"], _UNQUANTIZED)
            plain.unlink()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
