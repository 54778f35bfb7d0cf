"""Tiny random ColBERT checkpoints and a tiny VisRAG-Ret, in the published layouts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch

import visar.encoders
from tests.encoders.tiny import WORDS, tokenizer
from visar.models.loading import import_torchvision

# The vocabulary of bert-base-uncased, which the published checkpoints use.
BERT = Path(visar.encoders.__file__).parent / "data" / "tokenizer.json"


def save_colbert(
    folder: Path, dimension: int = 128, *, document_length: int = 24, tokenizer: Path = BERT
) -> Path:
    """Save a ColBERTv2 in its authors' layout: BERT, a projection and ``artifact.metadata``.

    answerai-colbert-small has the same layout, with 96 dimensions. Published are 180 and 300 tokens
    of a document.
    """
    from safetensors.torch import save_file

    import_torchvision()
    from transformers import BertConfig, BertModel

    torch.manual_seed(7)
    folder.mkdir()
    config = BertConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    bert = BertModel(config, add_pooling_layer=False)
    weights = {f"bert.{key}": value.contiguous() for key, value in bert.state_dict().items()}
    weights["linear.weight"] = torch.randn(dimension, 32)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config.architectures = ["HF_ColBERT"]
    config.save_pretrained(folder)
    shutil.copy(tokenizer, folder / "tokenizer.json")
    marks = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "sep", "pad", "cls", "mask")}
    described = {"do_lower_case": True, "model_max_length": 512, "tokenizer_class": "BertTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(described | marks))
    (folder / "special_tokens_map.json").write_text(json.dumps(marks))
    metadata = {
        "query_token_id": "[unused0]",
        "doc_token_id": "[unused1]",
        "query_token": "[Q]",
        "doc_token": "[D]",
        "dim": dimension,
        "similarity": "cosine",
        "interaction": "colbert",
        "attend_to_mask_tokens": False,
        "query_maxlen": 32,
        "doc_maxlen": document_length,
        "mask_punctuation": True,
    }
    (folder / "artifact.metadata").write_text(json.dumps(metadata))
    return folder


def save_edge_colbert(folder: Path, dimension: int = 48) -> Path:
    """Save an mxbai-edge-colbert in PyLate's layout: ModernBERT and projections in subfolders.

    Its tokenizer tokenizes a word differently after a space than at the start of a text. As in the
    published one, the markers are ordinary added tokens, which lowercasing hides. Questions aren't
    filled up with mask tokens, and have 48 tokens at most. Published are 512 tokens of a document.
    """
    from safetensors.torch import save_file
    from tokenizers.normalizers import Lowercase

    import_torchvision()
    from transformers import ModernBertConfig, ModernBertModel

    torch.manual_seed(7)
    marks = {"unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "mask": "[MASK]"}
    words = tokenizer(
        [*marks.values()],
        around=("[CLS]", "[SEP]"),
        **{f"{name}_token": mark for name, mark in marks.items()},
    )
    words.backend_tokenizer.normalizer = Lowercase()
    words.add_tokens(["[Q] ", "[D] "])
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
        "query_length": 48,
        "document_length": 24,
        "attend_to_expansion_tokens": False,
        "do_query_expansion": False,
        "skiplist_words": list(".,?!()"),
    }
    (folder / "config_sentence_transformers.json").write_text(json.dumps(described))
    longest = {"max_seq_length": 23, "do_lower_case": False}
    (folder / "sentence_bert_config.json").write_text(json.dumps(longest))
    return folder


def save_visrag(folder: Path) -> Path:
    """Save a VisRAG-Ret in its authors' layout: a full model with its code."""
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    from tests.encoders import remote_code

    torch.manual_seed(7)
    folder.mkdir()
    words = ["<s>", "</s>", "<unk>", *WORDS.split(), "Represent", "this", "query"]
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
