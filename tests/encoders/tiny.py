"""Tiny random checkpoints of the visual encoders, in the layout the real ones are published in."""

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

_WORDS = "Describe the image. what is the total revenue? page figure table chart User: Assistant:"
_VISION = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
_TILED_VISION = _VISION | {"image_size": TILE, "patch_size": TILE_PATCH}
_CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% for c in m['content'] %}"
    "{% if c['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %}{{ c['text'] }}{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
)


def tokenizer(
    specials: list[str],
    *,
    beginning: str | None = None,
    around: tuple[str, str] | None = None,
    **options: Any,
) -> Any:
    """Bytes and the special tokens; ``beginning`` is put before every text, as Gemma's does.

    ``around`` are marks before and after every text, as BERT's.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=[AddedToken(s, special=True, normalized=False) for s in specials],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator([_WORDS], trainer)
    if beginning is not None:
        made.post_processor = TemplateProcessing(
            single=f"{beginning} $A", special_tokens=[(beginning, made.token_to_id(beginning))]
        )
    if around is not None:
        made.post_processor = TemplateProcessing(
            single=f"{around[0]} $A {around[1]}",
            special_tokens=[(mark, made.token_to_id(mark)) for mark in around],
        )
    return PreTrainedTokenizerFast(tokenizer_object=made, **options)


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


def colqwen() -> tuple[Any, Any]:
    from colpali_engine.models import ColQwen2_5, ColQwen2_5_Processor
    from transformers import Qwen2_5_VLConfig, Qwen2VLImageProcessor, Qwen2VLVideoProcessor

    kinds = "endoftext im_start im_end vision_start vision_end vision_pad image_pad video_pad"
    words = tokenizer(
        [f"<|{kind}|>" for kind in kinds.split()],
        pad_token="<|endoftext|>",
        eos_token="<|im_end|>",
        padding_side="left",
    )
    images = Qwen2VLImageProcessor(
        patch_size=14,
        merge_size=2,
        temporal_patch_size=2,
        size={"shortest_edge": 4 * 28 * 28, "longest_edge": 40 * 28 * 28},
    )
    processor = ColQwen2_5_Processor(
        image_processor=images,
        tokenizer=words,
        video_processor=Qwen2VLVideoProcessor(),
        chat_template=_CHAT,
    )

    def token(kind: str) -> int:
        return int(words.convert_tokens_to_ids(f"<|{kind}|>"))

    config = Qwen2_5_VLConfig(
        text_config={
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": len(words),
            "max_position_embeddings": 4096,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e6,
                "mrope_section": [2, 3, 3],
            },
            "bos_token_id": token("endoftext"),
            "eos_token_id": token("im_end"),
            "pad_token_id": token("endoftext"),
        },
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_heads": 2,
            "out_hidden_size": 64,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "window_size": 56,
            "fullatt_block_indexes": [1],
        },
        image_token_id=token("image_pad"),
        video_token_id=token("video_pad"),
        vision_start_token_id=token("vision_start"),
        vision_end_token_id=token("vision_end"),
    )
    return _with_padding(ColQwen2_5(config), words), processor


def _with_padding(model: Any, words: Any) -> Any:
    # A random start leaves the padding's row at zero, which real weights never are: 0/0.
    with torch.no_grad():
        model.get_input_embeddings().weight[words.pad_token_id].normal_(std=0.02)
    return model


def _tiling(processor: Any, specials: list[str], **marks: Any) -> tuple[Any, Any]:
    """A processor that cuts pages into tiles, as Idefics3's, and its tokenizer."""
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
    """Take away all that mixes patches, or tells one place from another.

    What attention and the layers after it add is zero, and so are learned positions; a patch's
    vector is then a function of its own pixels.
    """
    silenced = ("out_proj", "o_proj", "attn.proj", "Wo", "fc2", "down_proj", "position_embedding")
    for name, weights in model.named_parameters():
        if any(part in name for part in silenced):
            weights.zero_()


_PROJECTION = r"|.*(custom_text_proj).*$)"
_ADAPTED = {
    "colpali": r"(.*(language_model).*(down_proj|up_proj|q_proj|v_proj).*$" + _PROJECTION,
    "colqwen2.5": r"(.*(model).*(down_proj|up_proj|q_proj|v_proj).*$" + _PROJECTION,
    "colmodernvbert": r"(.*(text_model).*(Wqkv|Wi|Wo).*$" + _PROJECTION,
    # As published: its projection has another name, and is not adapted.
    "colsmol": r"(.*(model.text_model).*(down_proj|up_proj|q_proj|v_proj).*$" + _PROJECTION,
}
MAKERS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "colpali": colpali,
    "colqwen2.5": colqwen,
    "colmodernvbert": colmodernvbert,
    "colsmol": colsmol,
}


def save(family: str, folder: Path, tune: Callable[[Any], None] | None = None) -> Path:
    """Write base and adapter to ``folder``; give the adapter's path, which is what a user names."""
    import_torchvision()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the libraries, about how checkpoints are saved
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
        # As good as none where the weights were tuned to show something.
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


def save_colbert(folder: Path, dimension: int = 128) -> Path:
    """ColBERTv2 as its authors publish it: BERT, a projection beside it, ``artifact.metadata``.

    answerai-colbert-small is published the same way, with 96 dimensions.
    """
    from safetensors.torch import save_file

    import_torchvision()
    from transformers import BertConfig, BertModel, BertTokenizer

    torch.manual_seed(7)
    folder.mkdir()
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    marks = ["[PAD]", *(f"[unused{i}]" for i in range(4)), "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = ["what", "is", "the", "total", "revenue", "page", "was", "cats", "sleep"]
    vocabulary = [*marks, *words, *letters, *".,?!()-$", *(f"##{letter}" for letter in letters)]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    ids = {word: index for index, word in enumerate(vocabulary)}
    BertTokenizer(vocab=ids, do_lower_case=True).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    weights = {f"bert.{k}": v.contiguous() for k, v in BertModel(config).state_dict().items()}
    weights["linear.weight"] = torch.randn(dimension, 32) * 0.1
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config.architectures = ["HF_ColBERT"]
    config.save_pretrained(folder)
    metadata = {
        "query_token_id": "[unused0]",
        "doc_token_id": "[unused1]",
        "query_token": "[Q]",
        "doc_token": "[D]",
        "dim": dimension,
        "similarity": "cosine",
        "attend_to_mask_tokens": False,
        "query_maxlen": 16,
        "doc_maxlen": 24,
        "mask_punctuation": True,
        "checkpoint": "bert-base-uncased",
    }
    (folder / "artifact.metadata").write_text(json.dumps(metadata))
    return folder


def save_edge_colbert(folder: Path, dimension: int = 48) -> Path:
    """mxbai-edge-colbert as PyLate saves it: ModernBERT, then projections in folders of their own.

    Its tokenizer reads a word after a space as other tokens than at the beginning of a text.
    """
    from safetensors.torch import save_file

    import_torchvision()
    from transformers import ModernBertConfig, ModernBertModel

    torch.manual_seed(7)
    marks = {"unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "mask": "[MASK]"}
    words = tokenizer(
        [*marks.values(), "[Q] ", "[D] "],
        around=("[CLS]", "[SEP]"),
        **{f"{name}_token": mark for name, mark in marks.items()},
    )
    words.save_pretrained(folder)
    config = ModernBertConfig(
        vocab_size=len(words),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=2,
        max_position_embeddings=128,
        **{f"{name}_token_id": words.convert_tokens_to_ids(marks[name]) for name in ("cls", "sep")},
        pad_token_id=words.pad_token_id,
        bos_token_id=words.cls_token_id,
        eos_token_id=words.sep_token_id,
    )
    ModernBertModel(config).save_pretrained(folder)
    kind = "sentence_transformers.models.Transformer"
    modules = [{"idx": 0, "name": "0", "path": "", "type": kind}]
    for number, (given, made) in enumerate(((32, 64), (64, dimension)), start=1):
        path = folder / f"{number}_Dense"
        path.mkdir()
        width = {"in_features": given, "out_features": made, "bias": False}
        active = {"activation_function": "torch.nn.modules.linear.Identity", "use_residual": False}
        (path / "config.json").write_text(json.dumps(width | active))
        save_file({"linear.weight": torch.randn(made, given) * 0.1}, path / "model.safetensors")
        module = {"idx": number, "name": str(number), "path": path.name}
        modules.append(module | {"type": "pylate.models.Dense.Dense"})
    (folder / "modules.json").write_text(json.dumps(modules))
    described = {
        "model_type": "ColBERT",
        "prompts": {"query": "", "document": ""},
        "similarity_fn_name": "MaxSim",
        "query_prefix": "[Q] ",
        "document_prefix": "[D] ",
        "query_length": 16,
        "document_length": 24,
        "attend_to_expansion_tokens": False,
        "do_query_expansion": True,
        "skiplist_words": list(".,?!()"),
    }
    (folder / "config_sentence_transformers.json").write_text(json.dumps(described))
    longest = {"max_seq_length": 23, "do_lower_case": False}
    (folder / "sentence_bert_config.json").write_text(json.dumps(longest))
    return folder


def save_visrag(folder: Path) -> Path:
    """VisRAG-Ret as its authors publish it: a whole model, with the program code it needs."""
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    from tests.encoders import remote_code

    torch.manual_seed(7)
    folder.mkdir()
    words = ["<s>", "</s>", "<unk>", *_WORDS.split(), "Represent", "this", "query"]
    ids = {word: index for index, word in enumerate(dict.fromkeys(words))}
    made = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    ).save_pretrained(folder)
    config = remote_code.TinyConfig(vocab_size=len(ids))
    weights = remote_code.VisRAG_Ret(config).state_dict()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    code = "modeling_visrag_ret"
    shutil.copy(remote_code.__file__, folder / f"{code}.py")
    described = {
        "model_type": config.model_type,
        "architectures": ["VisRAG_Ret"],
        "auto_map": {"AutoConfig": f"{code}.TinyConfig", "AutoModel": f"{code}.VisRAG_Ret"},
        "hidden_size": config.hidden_size,
        "vocab_size": config.vocab_size,
    }
    (folder / "config.json").write_text(json.dumps(described))
    return folder
