"""The list of encoders and their names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visar.encoders import records, registry
from visar.encoders.names import EncoderName, parse_name
from visar.encoders.records import PUBLISHED
from visar.encoders.registry import get_encoder
from visar.encoders.visual import FAMILIES
from visar.errors import CheckpointError, EncoderUnavailable, InvalidOption
from visar.serialization import to_plain


def test_records_match_the_encoders() -> None:
    for info in registry.available_encoders():
        if info.state != "missing":
            encoder = get_encoder(info.name)
            assert (encoder.name, encoder.dimension, encoder.reads) == (
                info.name,
                info.dimension,
                info.reads,
            )


def test_the_default_comes_first_and_is_ready() -> None:
    first = registry.available_encoders()[0]
    assert first.name == get_encoder().name == "embedded"
    assert first.state == "ready"


def test_the_embedded_encoder_has_no_device_or_revision() -> None:
    assert get_encoder("embedded", device="cpu").name == "embedded"
    with pytest.raises(InvalidOption, match=r"'embedded'.*'cuda'"):
        get_encoder("embedded", device="cuda")
    with pytest.raises(InvalidOption, match=r"'embedded'.*@main"):
        get_encoder("embedded@main")
    with pytest.raises(InvalidOption, match="'gpu'"):
        get_encoder(device="gpu")


def test_every_encoder_has_a_cost() -> None:
    listed = {one.name: one for one in records.RECORDS.values()}
    assert listed["colpali"].size == "3 B parameters, 6 GB"
    assert listed["colpali"].page_bytes == 2 * 1030 * 128
    assert all(one.size and one.description for one in listed.values())
    # Its number of patches is unknown.
    assert [name for name, one in listed.items() if one.page_bytes is None] == ["colqwen3.5"]
    assert {one.name: to_plain(one)["state"] for one in listed.values()} == {
        name: one.state for name, one in listed.items()
    }


def test_the_error_for_an_unknown_name_lists_known_names() -> None:
    with pytest.raises(InvalidOption, match=r"no encoder 'colpalli'.*embedded.*folder"):
        get_encoder("colpalli")


def test_the_error_for_a_missing_package_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    needs = ("", ("numpy", "no_such_package"))
    monkeypatch.setitem(records._NEEDS, records.EMBEDDED, needs)
    assert registry.available_encoders()[0].state == "missing"
    with pytest.raises(EncoderUnavailable, match="no_such_package: pip install visar-rag"):
        get_encoder("embedded")


def test_the_revision_is_requested_and_part_of_the_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requests: list[tuple[str, str | None]] = []

    def download(name: str, _file: str, *, revision: str | None, **_options: Any) -> str:
        requests.append((name, revision))
        raise huggingface_hub.errors.LocalEntryNotFoundError("no network here")

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    named = get_encoder("colpali@abc123+pool3")
    assert named.name == "colpali@abc123+pool3"
    with pytest.raises(CheckpointError, match=r"vidore/colpali-v1\.2 is not on this machine"):
        _ = named.version
    with pytest.raises(CheckpointError, match=r"hf download vidore/colpali-v1\.3`"):
        get_encoder("vidore/colpali-v1.3@refs/pr/7")
    assert set(requests) == {
        ("vidore/colpali-v1.2", "abc123"),
        ("vidore/colpali-v1.3", "refs/pr/7"),
    }


@pytest.mark.parametrize(
    "address",
    ["http://127.0.0.1:8765@main", "https://host/colpali@v2+pool2", "vllm+http://h:1/o/model@v2"],
)
def test_an_address_has_no_revision(address: str) -> None:
    with pytest.raises(InvalidOption, match="address"):
        get_encoder(address)


def test_invalid_combinations_are_errors(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="local folder"):
        get_encoder(f"{tmp_path}@main")
    with pytest.raises(InvalidOption, match="no encoder 'colpalli'"):
        get_encoder("colpalli@main+pool3")
    with pytest.raises(InvalidOption, match=r"vLLM.*\+poolN"):
        get_encoder("vllm+http://127.0.0.1:1/org/model+pool2")


def test_published_checkpoints() -> None:
    """This test pins the checkpoints that the names refer to."""
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
        "colqwen2": (
            "vidore/colqwen2-v1.0",
            "530094e83a40ca4edcb5c9e5ddfa61a4b5ea0d2f",
            "ColQwen2",
        ),
        "colqwen3.5": (
            "athrael-soju/colqwen3.5-4.5B-v3",
            "4ad8f151e39bce3adcf88e0bdd72e724c7606638",
            "ColQwen3_5",
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
    # For two families, no published checkpoint is known to load.
    assert {family.model_class for family in FAMILIES.values()} - classes == {
        "ColQwen3",
        "ColGemma3",
    }


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
        st.none() | st.integers(1, 4096),
        st.sampled_from(["float16", "int8", "bits"]),
    ),
    st.builds(EncoderName, _addresses, st.none(), st.booleans(), st.none() | st.integers(2, 999)),
)


@given(_names)
def test_names_round_trip(name: EncoderName) -> None:
    assert parse_name(str(name)) == name


@pytest.mark.parametrize("name", ["model", "model@v2", "model+pool3", "model@v2+pool3", "a@b/c"])
def test_an_existing_folder_takes_precedence(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir(parents=True)
    assert parse_name(str(folder)) == EncoderName(str(folder))
    assert parse_name(f"{folder}+pool2") == EncoderName(str(folder), None, pool=2)
    assert parse_name(f"{folder}@main+pool2") == EncoderName(str(folder), "main", pool=2)


def test_a_folder_takes_precedence_over_a_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_name("mine@2+pool2") == EncoderName("mine", "2", pool=2)
    (tmp_path / "mine@2").mkdir()
    assert parse_name("mine@2+pool2") == EncoderName("mine@2", None, pool=2)


def test_a_missing_path_is_reported_as_typed(tmp_path: Path) -> None:
    assert parse_name("./nowhere@home/model") == EncoderName("./nowhere@home/model")
    assert parse_name(f"{tmp_path}/x+pool2") == EncoderName(f"{tmp_path}/x", None, pool=2)


@pytest.mark.parametrize("factor", ["", "0", "1", "-3", "2.5", "03", "x", "3@main", "²", " 3"])
def test_a_factor_is_a_whole_number_of_at_least_two(factor: str) -> None:
    with pytest.raises(InvalidOption, match=r"\+poolN"):
        parse_name(f"colpali+pool{factor}")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "name is empty"),
        ("+pool3", "name is empty"),
        ("@main", "name is empty"),
        ("colpali@", "no revision after the @"),
        ("colpali@+pool2", "no revision after the @"),
        ("colpali+pool3+pool2", "pool"),
        ("colpali@main+pool3+pool2", "pool"),
        ("colpali+int8+bits", r"more than one \+int8 or \+bits"),
        ("colpali+dim0", "dimN"),
        ("colpali+dim", "dimN"),
    ],
)
def test_invalid_names_are_errors(name: str, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        parse_name(name)


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "~nobody-has-this-name/x"])
def test_an_invalid_path_is_not_a_folder(name: str) -> None:
    assert parse_name(name) == EncoderName(name)


@pytest.mark.parametrize("end", ["+poolx", "/a@", "+pool2+pool3", ""])
@pytest.mark.parametrize("kind", ["", "vllm+", "colpali="])
def test_errors_never_contain_passwords_of_addresses(kind: str, end: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        get_encoder(f"{kind}http://user:5ecret@host/model{end}")
    assert "5ecret" not in str(refused.value)


@pytest.mark.parametrize("name", ["embedded+patches", "colbertv2+patches", "visrag-ret+patches"])
def test_only_encoders_with_an_instruction_have_patches_mode(name: str) -> None:
    with pytest.raises(InvalidOption, match=r"\+patches"):
        get_encoder(name)


def test_options_of_a_remote_encoder_are_set_by_its_service() -> None:
    for part in ("patches", "authors"):
        with pytest.raises(InvalidOption, match=rf"serve colmodernvbert\+{part}"):
            get_encoder(f"http://127.0.0.1:1+{part}")


@pytest.mark.parametrize("name", ["embedded", "colbertv2", "colpali", "colqwen2.5"])
def test_only_colmodernvbert_has_an_authors_mode(name: str) -> None:
    with pytest.raises(InvalidOption, match=r"\+authors"):
        get_encoder(f"{name}+authors")


def test_a_checkpoint_can_be_declared_a_known_encoder(checkpoint: Callable[[str], Path]) -> None:
    folder = checkpoint("colpali")
    mine = get_encoder(f"colpali={folder}", device="cpu")
    assert mine.name == f"colpali={folder}"
    assert parse_name(mine.name).published == "colpali"
    assert mine.version == get_encoder(str(folder), device="cpu").version
    with pytest.raises(CheckpointError, match="ColPali, not ColQwen2_5") as caught:
        get_encoder(f"colqwen2.5={folder}")
    assert "revision" not in str(caught.value), "a folder has none to choose from"
    with pytest.raises(InvalidOption, match="no encoder 'mine'"):
        get_encoder(f"mine={folder}")


def test_a_folder_named_like_a_declaration_takes_precedence(tmp_path: Path) -> None:
    folder = tmp_path / "colpali=mine"
    folder.mkdir()
    assert parse_name(str(folder)) == EncoderName(str(folder))
