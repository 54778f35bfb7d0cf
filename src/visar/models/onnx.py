"""ONNX models on the CPU: sha256 checks, sessions and tokenizers that threads can share."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visar.errors import DamagedModel

if TYPE_CHECKING:
    from onnx import ModelProto
    from tokenizers import Tokenizer

DOMAIN = "com.microsoft"
"""The domain of onnxruntime's own operators."""


def check_sha256(content: bytes, sha256: str, path: str, package: str | None = None) -> None:
    """Raise DamagedModel if a file's sha256 differs; ``package`` is the package it comes from."""
    actual = hashlib.sha256(content).hexdigest()
    if actual != sha256:
        advice = f"Reinstall it: pip install --force-reinstall {package}"
        raise DamagedModel(
            f"{path} has sha256 {actual[:16]}… instead of {sha256[:16]}…, so it wasn't loaded. "
            + (advice if package else "Replace it with an intact copy.")
        )


def open_session(model: bytes, threads: int = 1) -> Any:
    """Open a session that threads may share; ``threads`` includes the calling thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    # Spinning threads would take cores from the threads that read pages.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.inter_op_num_threads = 1
    # Layer norms run faster when not fused with the addition before them.
    return onnxruntime.InferenceSession(
        model,
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=["SkipLayerNormFusion"],
    )


def open_tokenizer(content: bytes) -> Tokenizer:
    """Open a tokenizer, ignoring the padding and truncation settings in its file."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_buffer(content)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def quantize_dynamically(
    model: ModelProto | Path,
    target: Path,
    operations: Sequence[str] | None = None,
    excluded_prefixes: tuple[str, ...] = (),
) -> None:
    """Write a model with 8-bit weights (one scale per channel) and 8-bit activations.

    ``operations`` are the operator types to quantize, by default all that are supported. Nodes
    whose name has an excluded prefix are left out.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.quant_utils import add_pre_process_metadata

    graph = onnx.load(model) if isinstance(model, Path) else model
    # Without this the quantizer logs a warning to the root logger.
    add_pre_process_metadata(graph)
    names = [node.name for node in graph.graph.node if node.name.startswith(excluded_prefixes)]
    quantize_dynamic(
        graph,
        target,
        op_types_to_quantize=operations,
        nodes_to_exclude=names,
        weight_type=QuantType.QInt8,
        per_channel=True,
    )
