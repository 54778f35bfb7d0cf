"""The encoders there are, and how they are named."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visar.encoders import registry
from visar.encoders.names import EncoderName, parse_name
from visar.encoders.registry import PUBLISHED, get_encoder
from visar.encoders.visual import FAMILIES
from visar.errors import CheckpointError, EncoderUnavailable, InvalidOption


def test_what_the_registry_says_of_an_encoder_is_true() -> None:
    for info in registry.available_encoders():
        if info.state != "missing":
            encoder = get_encoder(info.name)
            assert (encoder.name, encoder.dimension, encoder.reads) == (
                info.name,
                info.dimension,
                info.reads,
            )


def test_the_default_comes_first_and_is_ready_after_a_plain_installation() -> None:
    first = registry.available_encoders()[0]
    assert first.name == get_encoder().name == "embedded"
    assert first.is_ready


def test_the_embedded_encoder_has_neither_device_nor_revision() -> None:
    assert get_encoder("embedded", device="cpu").name == "embedded"
    with pytest.raises(InvalidOption, match="'embedded' takes no device: leave out 'cuda'"):
        get_encoder("embedded", device="cuda")
    with pytest.raises(InvalidOption, match="'embedded' has no revisions: leave out @main"):
        get_encoder("embedded@main")
    with pytest.raises(InvalidOption, match="no device 'gpu'"):
        get_encoder(device="gpu")


def test_every_encoder_tells_its_size() -> None:
    sizes = {info.name: info.size for info in registry.available_encoders()}
    assert sizes["colpali"] == "3 B parameters, 6 GB"
    assert all(sizes.values())


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(InvalidOption, match=r"no encoder 'colpalli'.*embedded.*folder"):
        get_encoder("colpalli")


def test_a_missing_package_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = dataclasses.replace(
        registry._ENCODERS["embedded"], packages=("numpy", "no_such_package")
    )
    monkeypatch.setitem(registry._ENCODERS, "embedded", entry)
    assert not registry.available_encoders()[0].is_ready
    with pytest.raises(EncoderUnavailable, match="needs no_such_package: pip install visar-rag"):
        get_encoder("embedded")


def test_the_revision_goes_to_the_hub_and_stays_in_the_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[str, str | None]] = []

    def download(name: str, _file: str, *, revision: str | None, **_options: Any) -> str:
        asked.append((name, revision))
        raise huggingface_hub.errors.LocalEntryNotFoundError("no network here")

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    named = get_encoder("colpali@abc123+pool3")
    assert named.name == "colpali@abc123+pool3"
    with pytest.raises(CheckpointError, match=r"vidore/colpali-v1\.2 is not on this machine"):
        _ = named.version
    with pytest.raises(CheckpointError, match=r"hf download vidore/colpali-v1\.3`"):
        get_encoder("vidore/colpali-v1.3@refs/pr/7")
    assert set(asked) == {("vidore/colpali-v1.2", "abc123"), ("vidore/colpali-v1.3", "refs/pr/7")}


@pytest.mark.parametrize(
    "address",
    ["http://127.0.0.1:8765@main", "https://host/colpali@v2+pool2", "vllm+http://h:1/o/model@v2"],
)
def test_an_address_has_no_revision(address: str) -> None:
    with pytest.raises(InvalidOption, match="An address takes no revision"):
        get_encoder(address)


def test_a_folder_has_no_revision_and_an_unknown_name_no_factor(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="revision goes with a hub name"):
        get_encoder(f"{tmp_path}@main")
    with pytest.raises(InvalidOption, match="no encoder 'colpalli'"):
        get_encoder("colpalli@main+pool3")
    with pytest.raises(InvalidOption, match="vLLM serves cannot be pooled"):
        get_encoder("vllm+http://127.0.0.1:1/org/model+pool2")


def test_the_published_checkpoints() -> None:
    """What the names stand for is decided here, and in no second place."""
    table = {name: (p.repository, p.revision, p.model_class) for name, p in PUBLISHED.items()}
    assert table == {
        "colpali": (
            "vidore/colpali-v1.2",
            "6b89bc63c16809af4d111bfe412e2ac6bc3c9451",
            "ColPali",
        ),
        "colqwen2.5": (
            "vidore/colqwen2.5-v0.1",
            "9b8ddce7a35cb55148502554d8d640d8b499930a",
            "ColQwen2_5",
        ),
        "colmodernvbert": (
            "ModernVBERT/colmodernvbert",
            "3bcd984f8f83c96dccb76cf2ed6d6a8108d3a046",
            "ColModernVBert",
        ),
        "colsmol-256m": ("vidore/colSmol-256M", "main", "ColIdefics3"),
        "colsmol-500m": ("vidore/colSmol-500M", "main", "ColIdefics3"),
        "colbertv2": ("colbert-ir/colbertv2.0", "main", "ColBERT"),
        "colbert-small": ("answerdotai/answerai-colbert-small-v1", "main", "ColBERT"),
        "edge-colbert-17m": ("mixedbread-ai/mxbai-edge-colbert-v0-17m", "main", "ColBERT"),
        "edge-colbert-32m": ("mixedbread-ai/mxbai-edge-colbert-v0-32m", "main", "ColBERT"),
        "visrag-ret": (
            "openbmb/VisRAG-Ret",
            "95ef596df871b606167cb7e4b7215caf1bfdf761",
            "VisRAG_Ret",
        ),
    }
    bases = {name: p.base_revision for name, p in PUBLISHED.items() if p.base_revision}
    assert bases == {
        "colpali": "30ab955d073de4a91dc5a288e8c97226647e3e5a",
        "colqwen2.5": "92908120384b7a2110c5beda3ab29cbdb2c08e49",
        "colmodernvbert": "1f247b4098c641593b6ba2e64756460b7a48a126",
    }
    classes = {one.model_class for one in PUBLISHED.values()}
    assert {family.model_class for family in FAMILIES.values()} < classes


_hub_part = st.text("abcXYZ019._-", min_size=1, max_size=8).filter(lambda part: part[0] != ".")
_bases = st.one_of(
    st.sampled_from(["embedded", "colpali", "colqwen2.5", "visrag-ret"]),
    st.tuples(_hub_part, _hub_part).map("/".join),
)
_revisions = st.text("abc019._-/@", min_size=1, max_size=12)
_addresses = st.sampled_from(
    ["http://127.0.0.1:8765", "https://host/a/path", "vllm+http://host:8000/org/model"]
)
_names = st.one_of(
    st.builds(
        EncoderName,
        _bases,
        st.none() | _revisions,
        st.booleans(),
        st.none() | st.integers(2, 999),
        st.booleans(),
        st.sampled_from([None, "colpali", "colqwen2.5"]),
    ),
    st.builds(EncoderName, _addresses, st.none(), st.booleans(), st.none() | st.integers(2, 999)),
)


@given(_names)
def test_a_name_is_the_same_after_writing_and_reading_it(name: EncoderName) -> None:
    assert parse_name(str(name)) == name


@pytest.mark.parametrize("name", ["model", "model@v2", "model+pool3", "model@v2+pool3", "a@b/c"])
def test_a_folder_that_is_there_wins(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir(parents=True)
    assert parse_name(str(folder)) == EncoderName(str(folder))
    assert parse_name(f"{folder}+pool2") == EncoderName(str(folder), None, pool=2)
    assert parse_name(f"{folder}@main+pool2") == EncoderName(str(folder), "main", pool=2)


def test_a_folder_of_the_working_directory_wins_over_a_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_name("mine@2+pool2") == EncoderName("mine", "2", pool=2)
    (tmp_path / "mine@2").mkdir()
    assert parse_name("mine@2+pool2") == EncoderName("mine@2", None, pool=2)


def test_a_path_that_is_not_there_is_told_as_it_was_typed(tmp_path: Path) -> None:
    assert parse_name("./nowhere@home/model") == EncoderName("./nowhere@home/model")
    assert parse_name(f"{tmp_path}/x+pool2") == EncoderName(f"{tmp_path}/x", None, pool=2)


@pytest.mark.parametrize("factor", ["", "0", "1", "-3", "2.5", "03", "x", "3@main", "²", " 3"])
def test_a_factor_is_a_whole_number_from_two_on(factor: str) -> None:
    with pytest.raises(InvalidOption, match="by a whole number from 2 on, not by"):
        parse_name(f"colpali+pool{factor}")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "has no name"),
        ("+pool3", "has no name"),
        ("@main", "has no name"),
        ("colpali@", "no revision after the @"),
        ("colpali@+pool2", "no revision after the @"),
        ("colpali+pool3+pool2", "says twice"),
        ("colpali@main+pool3+pool2", "says twice"),
    ],
)
def test_names_that_say_too_little_or_too_much(name: str, said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        parse_name(name)


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "~nobody-has-this-name/x"])
def test_what_can_be_no_path_is_no_folder(name: str) -> None:
    assert parse_name(name) == EncoderName(name)


@pytest.mark.parametrize("end", ["+poolx", "/a@", "+pool2+pool3", ""])
@pytest.mark.parametrize("kind", ["", "vllm+"])
def test_a_password_in_an_address_is_never_repeated(kind: str, end: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        get_encoder(f"{kind}http://user:5ecret@host/model{end}")
    assert "5ecret" not in str(refused.value)


@pytest.mark.parametrize("name", ["embedded+patches", "colbertv2+patches", "visrag-ret+patches"])
def test_only_what_has_an_instruction_can_leave_it_out(name: str) -> None:
    with pytest.raises(InvalidOption, match="has none"):
        get_encoder(name)


def test_a_service_decides_itself_about_its_instruction() -> None:
    for part in ("patches", "authors"):
        with pytest.raises(InvalidOption, match=rf"serve colmodernvbert\+{part}"):
            get_encoder(f"http://127.0.0.1:1+{part}")


@pytest.mark.parametrize("name", ["embedded", "colbertv2", "colpali", "colqwen2.5"])
def test_only_one_encoder_has_a_mode_of_the_authors(name: str) -> None:
    with pytest.raises(InvalidOption, match="has no such mode"):
        get_encoder(f"{name}+authors")


def test_a_checkpoint_can_be_told_which_encoder_it_is(checkpoint: Callable[[str], Path]) -> None:
    folder = checkpoint("colpali")
    mine = get_encoder(f"colpali={folder}", device="cpu")
    assert mine.name == f"colpali={folder}"
    assert parse_name(mine.name).published == "colpali"
    assert mine.version == get_encoder(str(folder), device="cpu").version
    with pytest.raises(CheckpointError, match="is ColPali where ColQwen2_5 was expected"):
        get_encoder(f"colqwen2.5={folder}")
    with pytest.raises(InvalidOption, match="no encoder 'mine'"):
        get_encoder(f"mine={folder}")


def test_a_folder_whose_name_looks_like_one_wins(tmp_path: Path) -> None:
    folder = tmp_path / "colpali=mine"
    folder.mkdir()
    assert parse_name(str(folder)) == EncoderName(str(folder))
