"""Tests of language detection, stop words and stems."""

from __future__ import annotations

import pytest
import Stemmer
from hypothesis import given
from hypothesis import strategies as st

from visar.quotes.languages import LANGUAGES, Vocabulary, detect_language

TEXTS = {
    "english": "The warranty on the lantern is seven years, and that on its battery is five years.",
    "german": "Die Gewährleistung für die Laterne beträgt sieben Jahre, für den Akku fünf Jahre.",
    "french": "La garantie de la lanterne est de sept ans, et celle de la batterie de cinq ans.",
    "spanish": "La garantía de la linterna es de siete años y la de su batería es de cinco años.",
    "italian": "La garanzia della lanterna è di sette anni e quella della batteria di cinque anni.",
    "portuguese": "A garantia da lanterna é de sete anos e a da sua bateria não é mais de cinco.",
    "dutch": "De garantie op de lantaarn is zeven jaar en die van de accu is niet meer dan vijf.",
    "danish": "Garantien på lygten er syv år, og på batteriet er den ikke mere end fem år, hvad vi "
    "også skriver til jer efter købet.",
    "swedish": "Garantin på lyktan är sju år, och på batteriet är den inte mer än fem år.",
    "norwegian": "Garantien på lykten er syv år, og på batteriet er den ikke mer enn fem år, noe "
    "vi også skriver til deg etter kjøpet.",
    "finnish": "Lyhdyn takuu on seitsemän vuotta, mutta sen akun takuu on vain viisi vuotta.",
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_language_of_a_sentence_is_detected(language: str) -> None:
    assert detect_language(TEXTS[language].split()) == language
    assert language in Stemmer.algorithms()


@pytest.mark.parametrize(
    ("question", "language"),
    [
        ("What was revenue in 2024?", "english"),
        ("how do i pick up a phone call", "english"),
        ("Wie hoch war der Umsatz im Jahr 2024?", "german"),
        ("Quelle est la durée de la garantie ?", "french"),
        ("¿Cuánto dura la garantía?", "spanish"),
        ("Chi è l'amministratore delegato?", "italian"),
        ("Hoeveel medewerkers heeft het bedrijf?", "dutch"),
        ("Hur många anställda har koncernen?", "swedish"),
        ("Umsatz 2024", None),
        ("412.6 373.6 10.4%", None),
        ("保証期間は何年ですか", None),
        ("", None),
    ],
)
def test_the_language_of_a_question_is_detected_unless_it_is_unclear(
    question: str, language: str | None
) -> None:
    assert detect_language(question.split()) == language


def test_stop_words_and_stems_depend_on_the_language() -> None:
    german = Vocabulary("german")
    stems = [stem for _, stem in german.stems("Wie lange sind die Gewährleistungen der Häuser?")]
    assert stems == [stem for _, stem in german.stems("lange Gewährleistung Haus")]
    assert german.is_stop_word("für")
    assert not german.is_stop_word("Laterne")
    assert not Vocabulary("english").is_stop_word("der")
    # English is the default.
    assert Vocabulary().stems("the connections") == [(4, "connect")]


@pytest.mark.parametrize(
    ("language", "text", "noun"),
    [
        ("french", "l'année", "années"),
        ("italian", "dell’azienda", "aziende"),
        ("english", "O'Neill", ""),
    ],
)
def test_an_elided_article_is_not_part_of_the_word(language: str, text: str, noun: str) -> None:
    vocabulary = Vocabulary(language)
    ((start, stem),) = vocabulary.stems(text)
    if noun:
        assert text[start - 1] in "'’"
        assert (0, stem) in vocabulary.stems(noun)
    else:
        assert start == 0


@given(st.text(), st.sampled_from(LANGUAGES))
def test_every_stem_starts_at_a_word_of_the_text(text: str, language: str) -> None:
    starts = [start for start, _ in Vocabulary(language).stems(text)]
    assert starts == sorted(starts)
    assert all(not text[start].isspace() for start in starts)
