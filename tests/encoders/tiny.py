"""Tiny random checkpoints of the visual encoders, in the published layouts."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from visar.models.loading import import_torchvision

IMAGE_SIDE = 56  # ColPali: 448
PATCH = 14
TILE, TILE_PATCH, SHUFFLE = 64, 8, 2  # ColModernVBERT: 512, 16, 4

WORDS = "Describe the image. what is the total revenue? page figure table chart User: Assistant:"
_VISION = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
_TILED_VISION = _VISION | {"image_size": TILE, "patch_size": TILE_PATCH}
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% for c in m['content'] %}"
    "{% if c['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %}{{ c['text'] }}{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
)
_GEMMA_CHAT = (
    "{{ bos_token }}{% for m in messages %}<start_of_turn>{{ m['role'] }}\n"
    "{% for c in m['content'] %}{% if c['type'] == 'image' %}<start_of_image>"
    "{% else %}{{ c['text'] }}{% endif %}{% endfor %}<end_of_turn>\n{% endfor %}"
)


def tokenizer(
    specials: list[str],
    *,
    beginning: str | None = None,
    around: tuple[str, str] | None = None,
    **options: Any,
) -> Any:
    """Return a tokenizer for bytes and special tokens.

    ``beginning`` is a token before every text, as Gemma's; ``around`` are tokens before and after
    every text, as BERT's.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    result = Tokenizer(models.BPE())
    result.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    result.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=[AddedToken(s, special=True, normalized=False) for s in specials],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    result.train_from_iterator([WORDS], trainer)
    if beginning is not None:
        result.post_processor = TemplateProcessing(
            single=f"{beginning} $A", special_tokens=[(beginning, result.token_to_id(beginning))]
        )
    if around is not None:
        result.post_processor = TemplateProcessing(
            single=f"{around[0]} $A {around[1]}",
            special_tokens=[(mark, result.token_to_id(mark)) for mark in around],
        )
    return PreTrainedTokenizerFast(tokenizer_object=result, **options)


def colpali() -> tuple[Any, Any]:
    from colpali_engine.models import ColPali, ColPaliProcessor
    from transformers import PaliGemmaConfig, SiglipImageProcessor

    specials = ["<pad>", "<eos>", "<bos>", "<unk>", "<image>"]
    marks: dict[str, Any] = {f"{name}_token": f"<{name}>" for name in ("pad", "eos", "bos", "unk")}
    images: Any = SiglipImageProcessor(
        size={"height": IMAGE_SIDE, "width": IMAGE_SIDE}, image_mean=[0.5] * 3, image_std=[0.5] * 3
    )
    images.image_seq_length = (IMAGE_SIDE // PATCH) ** 2
    processor = ColPaliProcessor(
        image_processor=images, tokenizer=tokenizer(specials, beginning="<bos>", **marks)
    )
    words = processor.tokenizer
    config = PaliGemmaConfig(
        vision_config={
            **_VISION,
            "model_type": "siglip_vision_model",
            "image_size": IMAGE_SIDE,
            "patch_size": PATCH,
            "vision_use_head": False,
        },
        text_config={
            "model_type": "gemma",
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "head_dim": 16,
            "vocab_size": len(words),
            "pad_token_id": words.pad_token_id,
            "bos_token_id": words.bos_token_id,
            "eos_token_id": words.eos_token_id,
        },
        image_token_index=processor.image_token_id,
        projection_dim=32,
        hidden_size=32,
        vocab_size=len(words),
    )
    return ColPali(config), processor


_QWEN_TEXT = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
}
_QWEN_VISION = {
    "depth": 2,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_heads": 2,
    "out_hidden_size": 64,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}
_LATER_QWEN_VISION = _QWEN_VISION | {"patch_size": 16, "num_position_embeddings": 64}
_ROPE = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]}


def _qwen(
    model: str,
    processor: str,
    config: str,
    text: dict[str, Any],
    vision: dict[str, Any],
    **options: int,
) -> tuple[Any, Any]:
    """Return a model of the Qwen family and its processor, by the names of their classes."""
    import transformers
    from colpali_engine import models

    kinds = "endoftext im_start im_end vision_start vision_end vision_pad image_pad video_pad"
    words = tokenizer(
        [f"<|{kind}|>" for kind in kinds.split()],
        pad_token="<|endoftext|>",
        eos_token="<|im_end|>",
        padding_side="left",
    )
    side = 2 * vision["patch_size"]
    images = transformers.Qwen2VLImageProcessor(
        patch_size=vision["patch_size"],
        merge_size=2,
        temporal_patch_size=2,
        size={"shortest_edge": 4 * side**2, "longest_edge": 40 * side**2},
    )
    # From Qwen3-VL on, each video frame has a timestamp.
    films = "Qwen2VLVideoProcessor" if vision["patch_size"] == 14 else "Qwen3VLVideoProcessor"
    made = getattr(models, processor)(
        image_processor=images,
        tokenizer=words,
        video_processor=getattr(transformers, films)(),
        chat_template=CHAT,
    )

    def token(kind: str) -> int:
        return int(words.convert_tokens_to_ids(f"<|{kind}|>"))

    marks = {"bos_token_id": token("endoftext"), "eos_token_id": token("im_end")}
    described = getattr(transformers, config)(
        text_config={
            **_QWEN_TEXT,
            **marks,
            "vocab_size": len(words),
            "pad_token_id": token("endoftext"),
            **text,
        },
        vision_config=vision,
        image_token_id=token("image_pad"),
        video_token_id=token("video_pad"),
        vision_start_token_id=token("vision_start"),
        vision_end_token_id=token("vision_end"),
        **options,
    )
    return _with_padding(getattr(models, model)(described), words), made


def colqwen2() -> tuple[Any, Any]:
    vision = {
        "depth": 2,
        "embed_dim": 32,
        "hidden_size": 64,
        "num_heads": 2,
        "mlp_ratio": 2,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    }
    text = {"rope_parameters": _ROPE}
    return _qwen("ColQwen2", "ColQwen2Processor", "Qwen2VLConfig", text, vision)


def colqwen2_5() -> tuple[Any, Any]:
    return _qwen(
        "ColQwen2_5",
        "ColQwen2_5_Processor",
        "Qwen2_5_VLConfig",
        {"rope_parameters": _ROPE},
        _QWEN_VISION | {"window_size": 56, "fullatt_block_indexes": [1]},
    )


def colqwen3() -> tuple[Any, Any]:
    text = {"head_dim": 16, "rope_parameters": _ROPE | {"mrope_interleaved": True}}
    vision = _LATER_QWEN_VISION | {"deepstack_visual_indexes": [0]}
    return _qwen("ColQwen3", "ColQwen3Processor", "Qwen3VLConfig", text, vision)


def colqwen3_5() -> tuple[Any, Any]:
    """Linear attention in all layers except the last; 64 dimensions, set in its configuration."""
    text = {
        "head_dim": 16,
        "rope_parameters": _ROPE | {"mrope_interleaved": True, "partial_rotary_factor": 1.0},
        "layer_types": ["linear_attention", "full_attention"],
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
    }
    return _qwen(
        "ColQwen3_5", "ColQwen3_5Processor", "Qwen3_5Config", text, _LATER_QWEN_VISION, dim=64
    )


def colgemma() -> tuple[Any, Any]:
    from colpali_engine.models import ColGemma3, ColGemmaProcessor3
    from transformers import Gemma3Config, Gemma3ImageProcessor

    side = 2 * IMAGE_SIDE  # four patches are merged into one token
    kinds = "pad eos bos unk start_of_image end_of_image image_soft_token start_of_turn end_of_turn"
    marks: dict[str, Any] = {f"{name}_token": f"<{name}>" for name in ("pad", "eos", "bos", "unk")}
    words = tokenizer(
        [f"<{kind}>" for kind in kinds.split()],
        beginning="<bos>",
        extra_special_tokens={
            "image_token": "<image_soft_token>",
            "boi_token": "<start_of_image>",
            "eoi_token": "<end_of_image>",
        },
        chat_template=_GEMMA_CHAT,
        **marks,
    )
    images = Gemma3ImageProcessor(size={"height": side, "width": side})
    tokens = (IMAGE_SIDE // PATCH) ** 2
    processor = ColGemmaProcessor3(images, words, _GEMMA_CHAT, image_seq_length=tokens)
    config = Gemma3Config(
        text_config={
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "vocab_size": len(words),
            "layer_types": ["sliding_attention", "full_attention"],
            "sliding_window": 512,
            "pad_token_id": words.pad_token_id,
            "bos_token_id": words.bos_token_id,
            "eos_token_id": words.eos_token_id,
        },
        vision_config={
            **_VISION,
            "image_size": side,
            "patch_size": PATCH,
            "vision_use_head": False,
        },
        mm_tokens_per_image=tokens,
        image_token_index=words.convert_tokens_to_ids("<image_soft_token>"),
        boi_token_index=words.convert_tokens_to_ids("<start_of_image>"),
        eoi_token_index=words.convert_tokens_to_ids("<end_of_image>"),
    )
    model = ColGemma3(config)
    with torch.no_grad():  # zero by random initialization, so patches would have no effect
        model.multi_modal_projector.mm_input_projection_weight.normal_(std=0.1)
    return _with_padding(model, words), processor


def _with_padding(model: Any, words: Any) -> Any:
    # Random initialization leaves the padding's row at zero, unlike real weights, causing 0/0.
    with torch.no_grad():
        model.get_input_embeddings().weight[words.pad_token_id].normal_(std=0.02)
    return model


def _tiling(processor: Any, specials: list[str], **marks: Any) -> tuple[Any, Any]:
    """Return a processor that splits pages into tiles, as Idefics3's, and its tokenizer."""
    from transformers import Idefics3ImageProcessor

    places = [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]
    around = ["<global-img>", "<fake_token_around_image>", "<image>", "<end_of_utterance>"]
    inputs = ["input_ids", "attention_mask"]
    words = tokenizer([*specials, *around, *places], model_input_names=inputs, **marks)
    images = Idefics3ImageProcessor(
        do_image_splitting=True,
        size={"longest_edge": 3 * TILE},
        max_image_size={"longest_edge": TILE},
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    )
    tokens = (TILE // TILE_PATCH // SHUFFLE) ** 2
    return processor(image_processor=images, tokenizer=words, image_seq_len=tokens), words


def colmodernvbert() -> tuple[Any, Any]:
    from colpali_engine.models import ColModernVBert, ColModernVBertProcessor
    from transformers import ModernVBertConfig

    processor, words = _tiling(
        ColModernVBertProcessor,
        ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"],
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        mask_token="[MASK]",
    )
    config = ModernVBertConfig(
        text_config={
            "model_type": "modernbert",
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "vocab_size": len(words),
            "global_attn_every_n_layers": 3,
            "local_attention": 128,
            "max_position_embeddings": 2048,
            "pad_token_id": words.pad_token_id,
            "cls_token_id": words.cls_token_id,
            "sep_token_id": words.sep_token_id,
            "bos_token_id": words.cls_token_id,
            "eos_token_id": words.sep_token_id,
        },
        vision_config=_TILED_VISION | {"model_type": "siglip_vision_model"},
        image_token_id=words.convert_tokens_to_ids("<image>"),
        pixel_shuffle_factor=SHUFFLE,
    )
    return ColModernVBert(config), processor


def colsmol() -> tuple[Any, Any]:
    from colpali_engine.models import ColIdefics3, ColIdefics3Processor
    from transformers import Idefics3Config

    processor, words = _tiling(
        ColIdefics3Processor,
        ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        unk_token="<|endoftext|>",
    )
    config = Idefics3Config(
        text_config={
            "model_type": "llama",
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": len(words),
            "max_position_embeddings": 2048,
            "pad_token_id": words.pad_token_id,
            "bos_token_id": words.bos_token_id,
            "eos_token_id": words.eos_token_id,
        },
        vision_config=_TILED_VISION,
        image_token_id=words.convert_tokens_to_ids("<image>"),
        scale_factor=SHUFFLE,
    )
    return _with_padding(ColIdefics3(config), words), processor


def look_at_own_pixels_only(model: Any) -> None:
    """Remove everything that mixes patches or depends on their position.

    Attention, the layers after it and learned positions contribute zero, so a patch's vector is a
    function of its own pixels.
    """
    silenced = ["out_proj", "o_proj", "attn.proj", "Wo", "fc2", "down_proj"]
    silenced += ["position_embedding", "pos_embed", "deepstack_merger"]
    for name, weights in model.named_parameters():
        # Patches reach the language model through the merger.
        if any(part in name for part in silenced) and ".merger." not in name:
            weights.zero_()


_PROJECTION = r"|.*(custom_text_proj).*$)"
_ADAPTED = {
    "colpali": r"(.*(language_model).*(down_proj|up_proj|q_proj|v_proj).*$" + _PROJECTION,
    "colqwen2": r"(.*(model).*(down_proj|up_proj|q_proj|v_proj).*$" + _PROJECTION,
    "colqwen2.5": r"(.*(model).*(down_proj|up_proj|q_proj|v_proj).*$" + _PROJECTION,
    "colqwen3": r"(.*(model).*(down_proj|up_proj|q_proj|v_proj).*$" + _PROJECTION,
    "colqwen3.5": r"(.*(model).*(down_proj|up_proj|q_proj|v_proj).*$" + _PROJECTION,
    "colgemma3": r"(.*(language_model).*(down_proj|up_proj|q_proj|v_proj).*$" + _PROJECTION,
    "colmodernvbert": r"(.*(text_model).*(Wqkv|Wi|Wo).*$" + _PROJECTION,
    # As published: its projection has a different name and isn't adapted.
    "colsmol": r"(.*(model.text_model).*(down_proj|up_proj|q_proj|v_proj).*$" + _PROJECTION,
}
# Dimensions other than 128. ColQwen3.5's is in its configuration.
DIMENSIONS = {"colqwen3": 320, "colqwen3.5": 64}
MAKERS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "colpali": colpali,
    "colqwen2": colqwen2,
    "colqwen2.5": colqwen2_5,
    "colqwen3": colqwen3,
    "colqwen3.5": colqwen3_5,
    "colgemma3": colgemma,
    "colmodernvbert": colmodernvbert,
    "colsmol": colsmol,
}


def save(family: str, folder: Path, tune: Callable[[Any], None] | None = None) -> Path:
    """Write base and adapter to ``folder``; return the adapter's path."""
    import_torchvision()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the libraries warn about how checkpoints are saved
        return _save(family, folder, tune)


def _save(family: str, folder: Path, tune: Callable[[Any], None] | None) -> Path:
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(7)
    model, processor = MAKERS[family]()
    with torch.no_grad():
        projection = model.linear if family == "colsmol" else model.custom_text_proj
        projection.bias.normal_(std=0.02)
        if tune is not None:
            tune(model)
    base, adapter = folder / f"{family}-base", folder / family
    model.save_pretrained(base)
    processor.save_pretrained(base)
    lora = LoraConfig(
        r=4,
        lora_alpha=4,
        # Nearly zero if the weights were tuned for a test.
        init_lora_weights=tune is not None,
        task_type="FEATURE_EXTRACTION",
        target_modules=_ADAPTED[family],
    )
    adapted = get_peft_model(model, lora)
    adapted.peft_config["default"].base_model_name_or_path = str(base)
    adapted.save_pretrained(str(adapter))
    processor.save_pretrained(adapter)
    if family == "colsmol":  # published with a copy of its base's configuration
        shutil.copy(base / "config.json", adapter)
    assert "base_model_name_or_path" in json.loads((adapter / "adapter_config.json").read_text())
    return adapter
