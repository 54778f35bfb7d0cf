"""Making one operation of the many that an exported model computes its attention with."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

HEADS = 12
_DOMAIN = "com.microsoft"


def fuse_attention(model: ModelProto) -> int:
    """Replace softmax(q kᵀ) v of each layer by onnxruntime's own operation; count the layers.

    The mask goes too, and so do the guards against rows that are masked throughout: a text
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
                "MultiHeadAttention", inputs, [node.output[0]], domain=_DOMAIN, num_heads=HEADS
            )
    kept = _needed([fused.get(node.output[0], node) for node in graph.node], graph.output)
    del graph.node[:]
    graph.node.extend(kept)
    if all(opset.domain != _DOMAIN for opset in model.opset_import):
        model.opset_import.append(helper.make_opsetid(_DOMAIN, 1))
    return len(fused)


def _attended(node: NodeProto, makers: dict[str, NodeProto]) -> list[str]:
    """The queries, keys and values behind a node that ends a layer's attention, or nothing."""

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
    """The nodes that the outputs depend on, in their order."""
    wanted = {output.name for output in outputs}  # type: ignore[attr-defined]
    kept = []
    for node in reversed(nodes):
        if wanted & {*node.output}:
            kept.append(node)
            wanted |= {*node.input}
    return kept[::-1]
