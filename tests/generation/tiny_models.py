"""Tiny random checkpoints of the paper's language models, in their published layout.

The chat templates write what the published ones write, each with its own habits: LLaVA-OneVision
puts all images first, Idefics3 names turns in plain words, Qwen2.5-VL adds a system text of its
own where none is given.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests.encoders.tiny import tokenizer as byte_tokenizer
from visar.models.loading import import_torchvision

_HALF: Any = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
_CONTEXT = 4096
_TEXT: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": _CONTEXT,
}
_VISION: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 8,
}


def _chat(image: str, *, default_system: str = "") -> str:
    """Return the ChatML template of Qwen and InternVL."""
    default = (
        "{% if messages[0].role != 'system' %}<|im_start|>system\n"
        f"{default_system}<|im_end|>\n{{% endif %}}"
    )
    return (
        (default if default_system else "")
        + "{% for m in messages %}<|im_start|>{{ m.role }}\n"
        + "{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}"
        + "{% if c.type == 'image' %}"
        + image
        + "{% elif c.type == 'text' %}{{ c.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n"
        + "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )


_IDEFICS_CHAT = (
    "<|begin_of_text|>{% for m in messages %}{{ m.role | capitalize }}"
    "{% if m.content[0].type == 'image' %}:{% else %}: {% endif %}{% for c in m.content %}"
    "{% if c.type == 'text' %}{{ c.text }}{% else %}<image>{% endif %}{% endfor %}"
    "<end_of_utterance>\n{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)
_LLAVA_CHAT = (
    "{% for m in messages %}<|im_start|>{{ m.role }} "
    "{% for c in m.content if c.type == 'image' %}<image>\n{% endfor %}"
    "{% for c in m.content if c.type == 'text' %}\n{{ c.text }}{% endfor %}<|im_end|>"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer(marks: list[str], *, end: str, **options: Any) -> Any:
    """Return a tokenizer of bytes, some merges, and special tokens."""
    return byte_tokenizer(marks, eos_token=end, pad_token=marks[0], padding_side="left", **options)


def _text(words: Any, **options: Any) -> dict[str, Any]:
    tokens = {f"{kind}_token_id": words.pad_token_id for kind in ("bos", "pad")}
    tokens["eos_token_id"] = words.eos_token_id
    return _TEXT | tokens | {"vocab_size": len(words)} | options


def _qwen_tokenizer(**options: Any) -> Any:
    kinds = "endoftext im_start im_end vision_start vision_end vision_pad image_pad video_pad"
    return tokenizer([f"<|{kind}|>" for kind in kinds.split()], end="<|im_end|>", **options)


def _qwen_special_tokens(words: Any) -> dict[str, Any]:
    kinds = {"image": "image_pad", "video": "video_pad"} | {
        f"vision_{side}": f"vision_{side}" for side in ("start", "end")
    }
    return {f"{k}_token_id": words.convert_tokens_to_ids(f"<|{v}|>") for k, v in kinds.items()}


_QWEN_IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
_QWEN_VISION: dict[str, Any] = {
    "depth": 2,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_heads": 2,
    "out_hidden_size": 64,
}


def _qwen_images(patch: int) -> Any:
    from transformers import Qwen2VLImageProcessor

    side = 2 * patch
    return Qwen2VLImageProcessor(
        patch_size=patch,
        merge_size=2,
        temporal_patch_size=2,
        size={"shortest_edge": 4 * side**2, "longest_edge": 24 * side**2},
    )


def qwen2_5_vl() -> tuple[Any, Any]:
    import transformers as t

    words = _qwen_tokenizer()
    positions = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]}
    config = t.Qwen2_5_VLConfig(
        text_config=_text(words, rope_parameters=positions),
        vision_config={
            **_QWEN_VISION,
            "patch_size": 14,
            "window_size": 56,
            "fullatt_block_indexes": [1],
        },
        **_qwen_special_tokens(words),
    )
    processor = t.Qwen2_5_VLProcessor(
        image_processor=_qwen_images(14),
        tokenizer=words,
        video_processor=t.Qwen2VLVideoProcessor(),
        chat_template=_chat(_QWEN_IMAGE, default_system="You are a helpful assistant."),
    )
    return t.Qwen2_5_VLForConditionalGeneration(config), processor


def qwen3_vl() -> tuple[Any, Any]:
    import transformers as t

    words = _qwen_tokenizer()
    positions = {
        "rope_type": "default",
        "rope_theta": 5e6,
        "mrope_section": [4, 2, 2],
        "mrope_interleaved": True,
    }
    config = t.Qwen3VLConfig(
        text_config=_text(words, head_dim=16, rope_parameters=positions),
        vision_config={
            **_QWEN_VISION,
            "patch_size": 16,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0],
        },
        **_qwen_special_tokens(words),
    )
    processor = t.Qwen3VLProcessor(
        image_processor=_qwen_images(16),
        tokenizer=words,
        video_processor=t.Qwen3VLVideoProcessor(),
        chat_template=_chat(_QWEN_IMAGE),
    )
    return t.Qwen3VLForConditionalGeneration(config), processor


def internvl() -> tuple[Any, Any]:
    import transformers as t

    named = {
        "start_image_token": "<img>",
        "end_image_token": "</img>",
        "context_image_token": "<IMG_CONTEXT>",
        "video_token": "<video>",
    }
    marks = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *named.values()]
    words = tokenizer(marks, end="<|im_end|>", extra_special_tokens=named)
    side, patch = 28, 7
    tokens = (side // patch // 2) ** 2
    config = t.InternVLConfig(
        text_config=_text(words, model_type="qwen3", head_dim=16),
        vision_config=_VISION | {"image_size": [side] * 2, "patch_size": [patch] * 2},
        image_token_id=words.convert_tokens_to_ids("<IMG_CONTEXT>"),
        image_seq_length=tokens,
    )
    images = t.GotOcr2ImageProcessor(
        size={"height": side, "width": side},
        crop_to_patches=True,
        min_patches=1,
        max_patches=4,
        **_HALF,
    )
    processor = t.InternVLProcessor(
        image_processor=images,
        tokenizer=words,
        video_processor=t.InternVLVideoProcessor(),
        image_seq_length=tokens,
        chat_template=_chat("<IMG_CONTEXT>\n"),
    )
    return t.InternVLForConditionalGeneration(config), processor


def idefics3() -> tuple[Any, Any]:
    import transformers as t

    places = [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]
    around = ["<fake_token_around_image>", "<image>", "<global-img>"]
    marks = ["<|end_of_text|>", "<|begin_of_text|>", *around, "<end_of_utterance>", *places]
    # The end token of the tokenizer differs from the end of turns.
    words = tokenizer(marks, end="<|end_of_text|>", bos_token="<|begin_of_text|>")
    config = t.Idefics3Config(
        text_config=_text(words, model_type="llama", bos_token_id=words.bos_token_id),
        vision_config=_VISION,
        image_token_id=words.convert_tokens_to_ids("<image>"),
        scale_factor=2,
    )
    images = t.Idefics3ImageProcessor(
        size={"longest_edge": 128}, max_image_size={"longest_edge": 32}, **_HALF
    )
    processor = t.Idefics3Processor(
        image_processor=images, tokenizer=words, image_seq_len=4, chat_template=_IDEFICS_CHAT
    )
    return t.Idefics3ForConditionalGeneration(config), processor


def llava_onevision() -> tuple[Any, Any]:
    import transformers as t

    marks = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<image>", "<video>"]
    words = tokenizer(marks, end="<|im_end|>")
    shapes = [[32, 64], [64, 32], [64, 64]]
    config = t.LlavaOnevisionConfig(
        text_config=_text(words, model_type="qwen2"),
        vision_config=_VISION | {"model_type": "siglip_vision_model", "vision_use_head": False},
        image_token_index=words.convert_tokens_to_ids("<image>"),
        video_token_index=words.convert_tokens_to_ids("<video>"),
        image_grid_pinpoints=shapes,
    )
    images = t.LlavaOnevisionImageProcessor(
        size={"height": 32, "width": 32}, image_grid_pinpoints=shapes, **_HALF
    )
    processor = t.LlavaOnevisionProcessor(
        image_processor=images,
        tokenizer=words,
        video_processor=t.LlavaOnevisionVideoProcessor(),
        num_image_tokens=16,
        vision_feature_select_strategy="full",
        chat_template=_LLAVA_CHAT,
    )
    return t.LlavaOnevisionForConditionalGeneration(config), processor


def qwen2_text() -> tuple[Any, Any]:
    import transformers as t

    words = _qwen_tokenizer(chat_template=_chat("", default_system="You are Qwen."))
    return t.Qwen2ForCausalLM(t.Qwen2Config(**_text(words))), words


def bert_encoder() -> tuple[Any, Any]:
    """Return an encoder, which isn't a generator."""
    import transformers as t

    words = _qwen_tokenizer()
    config = t.BertConfig(
        vocab_size=len(words),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
    )
    return t.BertModel(config), words


MAKERS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "qwen2.5-vl": qwen2_5_vl,
    "qwen3-vl": qwen3_vl,
    "internvl3.5": internvl,
    "idefics3": idefics3,
    "llava-onevision": llava_onevision,
    "qwen2.5-7b": qwen2_text,
    "bert": bert_encoder,
}
"""Builders of tiny models, by name of the model in the paper."""


def save(name: str, folder: Path) -> Path:
    """Write a checkpoint to ``folder``, with random but reproducible weights."""
    import_torchvision()
    torch.manual_seed(7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the libraries, about how checkpoints are saved
        model, processor = MAKERS[name]()
        if model.can_generate():
            # As published: chance by default, and a penalty on what was said before.
            chance = {"do_sample": True, "temperature": 0.7, "top_p": 0.8, "top_k": 20}
            model.generation_config.update(**chance, repetition_penalty=1.05)
        model.save_pretrained(folder)
        processor.save_pretrained(folder)
    return folder
