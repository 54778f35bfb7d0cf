"""Language detection, stop words and stems."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from visar.encoders.terms import STOP_WORDS, find_terms, stem

# Stop words by language, with the names that PyStemmer uses.
_WORDS = {
    "german": """
        aber alle allem allen aller alles als also am an andere anderen auch auf aus bei beim bin
        bis bist da damit dann das dass dein dem den denn der des dessen die dies diese diesem
        diesen dieser dieses doch dort du durch ein eine einem einen einer eines er es etwas euer
        für gegen hab habe haben hat hatte hatten ich ihm ihn ihnen ihr ihre ihrem ihren ihrer im in
        indem ins ist jede jedem jeden jeder jedes kann kein keine können könnte machen man mein
        mit muss müssen nach nicht noch nur ob oder ohne sehr sein seine seinem seinen seiner seit
        sich sie sind so soll sollen sollte sondern über um und uns unser unsere unter viel viele
        vom von vor wann war waren warum was weil welche welchem welchen welcher welches wenn wer
        werden weder wie wieder wieviel will wir wird wo woher wohin womit worden wurde wurden
        während würde zu zum zur zwischen
    """,
    "french": """
        à ai ainsi alors après au aucun aussi autre aux avaient avait avant avec avez avoir avons
        c ce cela celle celui ces cet cette ceux chaque chez combien comme comment contre d dans de
        depuis des dont du d'un d'une elle elles en encore entre est et étaient était êtes été être
        eu eux fait faire font il ils j je jusque l la le les leur leurs lors lui m ma mais me même
        mes moi moins mon n ne ni nos notre nous on ont ou où par parce pas pendant peu peut peuvent
        plus pour pourquoi puis qu quand que quel quelle quelles quels qui quoi s sa sans se sera
        ses si sommes son sont sous sur t ta te tes toi ton tous tout toute toutes très tu un une
        vers voici vos votre vous y
    """,
    "spanish": """
        a al algo algunas algunos ante antes aquel aquella como cómo con contra cual cuál cuales
        cuáles cuando cuándo cuánta cuántas cuánto cuántos de del desde donde dónde durante e el él
        ella ellas ellos en entre era eran es esa esas ese eso esos esta está están estas este esto
        estos fue fueron ha había han hasta hay la las le les lo los más me mi mis mucho muchos muy
        nada ni no nos nosotros nuestra nuestro o otra otras otro otros para pero poco por porque
        qué que quien quién quienes se sea ser si sí sido sin sobre son su sus también tan tanto te
        tener tiene tienen todo todos tu tus un una unas uno unos usted y ya yo
    """,
    "italian": """
        a ad agli ai al alla alle allo anche avere aveva c che chi ci come con contro cosa cui da
        dagli dai dal dalla dalle dallo degli dei del dell della delle dello di dopo dove e è ed era
        erano essere fa fino fra fu gli ha hanno ho i il in io l la le lei li lo loro lui ma me mi
        mia mio molto ne negli nei nel nella nelle nello noi non nostra nostro o ogni per perché più
        poi prima qual quale quali quando quanta quante quanti quanto quella quelle quelli quello
        questa queste questi questo se sei si sia siamo sono sopra sotto sta stata stati stato su
        sua sue sugli sui sul sulla sulle sullo suo suoi tra tu tutta tutte tutti tutto un una uno
        vi voi
    """,
    "portuguese": """
        a à ainda além algum ao aos apenas aquela aquele as às até com como contra cada da das de
        dela dele deles depois do dos e é ela elas ele eles em entre era eram essa esse esta está
        estão estas este estes eu foi foram há isso isto já lhe mais mas me mesmo meu minha muito
        muitos na não nas nem no nos nós nossa nosso num numa o onde os ou para pela pelas pelo
        pelos por porque pode podem qual quais quando quanta quantas quanto quantos que quem são se
        seja sem ser será seu seus só sobre sua suas também tem têm tinha todas todo todos um uma
        umas uns você
    """,
    "dutch": """
        aan al alle alles als altijd andere ben bij daar dan dat de deze die dit doch doen door dus
        een en er ge geen had heb hebben heeft hem het hier hij hoe hoeveel hun iemand iets ik in is
        ja je kan kunnen maar me meer men met mij mijn moet moeten na naar niet niets nog nu of om
        omdat onder ons onze ook op over reeds te tegen toch toen tot tussen uit uw van veel voor
        waar waarom wanneer want waren was wat we weer welk welke werd werden wie wij wil word
        worden wordt zal ze zelf zich zij zijn zo zonder zou zullen
    """,
    "danish": """
        af alle alt andet andre at blev blive bliver da de dem den denne der deres det dette dig din
        disse dog du efter ej eller en end er et for fordi fra før få går ham han hans har havde
        have hende hendes her hos hun hvad hvem hver hvilken hvilket hvilke hvis hvor hvordan
        hvorfor hvornår i ikke ind jeg jer jo kan kun kunne man mange med meget men mellem mens mig
        min mine må nogen noget nogle nu når og også om op os over på sammen selv sig sin sine
        skal skulle som sådan til ud under var vi vil ville være været
    """,
    "swedish": """
        alla allt än andra att av bara bli blir blev då de dem den denna deras dess dessa det detta
        dig din ditt du där efter ej eller en ett era finns för från få får genom ha hade han hans
        har hennes honom hon hur här i icke inte inom jag kan kunde man med mellan men mer mig min
        mitt mot mycket många måste ni nu när någon något några och om oss på samma sedan sig sin
        sina sitt ska skall skulle som så till under upp ut utan vad var vara varför varje vem vi
        vid vilka vilken vilket vår våra är åt över
    """,
    "norwegian": """
        alle andre at av begge ble blei bli blir da de deg dei deira dem den denne der dere deres
        det dette din disse ditt du eg ei en er et ett etter for fordi fra før få går ha hadde han
        hans har hennes her hos hun hva hvem hver hvilke hvilken hvilket hvis hvor hvordan hvorfor
        ikke ikkje inn jeg kan kunne kva man mange med meg mellom men mer min mot mye må når noe
        noen nå og også om opp oss over på samme seg selv si sin sine sitt skal skulle slik som så
        til ut uten var vi vil ville være vært vår ved
    """,
    "finnish": """
        ei eivät että he heidän hän hänen ja jo joka jonka jossa jota joista jos jotka kanssa kaikki
        kuin kuka kuinka kun koska kuitenkin kuten me meidän mikä minkä minun minä missä milloin
        mistä miten miksi mitä mitkä monta mutta muiden mukaan myös ne niiden niin noin nyt näiden
        nämä ole oli olivat olla on ollut ovat se sekä sen siinä siitä sillä sinä sitä ja tai
        tämä tämän tässä tätä te vaan vai vain voi voidaan yli
    """,
}
# Maximum length of articles and prepositions that are joined to a word: l'année, dell'anno.
_ELIDED = {"french": 4, "italian": 5}
_TOKEN = re.compile(r"\S+")
# Minimum number of different stop words that a language needs to be detected.
_MIN_DIFFERENT = 2
# Minimum share of stop words among all words: some are words of other languages too.
_MIN_SHARE = 0.1


@functools.cache
def _stop_words(language: str) -> frozenset[str]:
    """Return the stop words of a language in the spelling of `find_terms`, without accents."""
    if language == "english":
        return STOP_WORDS
    return frozenset(term.key for term in find_terms(_WORDS[language].split()))


LANGUAGES = ("english", *_WORDS)
"""Languages that can be detected, with the names that PyStemmer uses."""


def detect_language(words: Iterable[str]) -> str | None:
    """Return the language with the most stop words among the words; None if it is unclear.

    >>> detect_language("Wie hoch war der Umsatz im Jahr 2024?".split())
    'german'
    >>> detect_language(["Umsatz", "2024"])
    """
    counts = Counter(key for word in words for _, key in _keys(word))
    scores = {
        language: (sum(counts[one] for one in present), len(present))
        for language in LANGUAGES
        if (present := _stop_words(language) & counts.keys())
    }
    ranked = sorted(scores, key=scores.__getitem__, reverse=True)
    if not ranked:
        return None
    hits, different = scores[ranked[0]]
    if different < _MIN_DIFFERENT or hits < _MIN_SHARE * counts.total():
        return None
    if len(ranked) > 1 and scores[ranked[1]][0] == hits:
        return None
    return ranked[0]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Stop words and stems of a language; of English if the language is None."""

    language: str | None = None

    def is_stop_word(self, word: str) -> bool:
        """Return whether all terms of a word are stop words."""
        stop_words = _stop_words(self.language or "english")
        return all(key in stop_words for _, key in _keys(word))

    def word_stems(self, word: str) -> list[str]:
        """Return the stems of a word's terms, without stop words."""
        return [found for _, found in _stems(self.language or "english", word)]

    def stems(self, text: str) -> list[tuple[int, str]]:
        """Return the position, in characters, and the stem of each term that isn't a stop word.

        >>> Vocabulary("german").stems("Die Häuser der Stadt")
        [(4, 'haus'), (15, 'stadt')]
        """
        language = self.language or "english"
        return [
            (token.start() + start, found)
            for token in _TOKEN.finditer(text)
            for start, found in _stems(language, token.group())
        ]


@functools.lru_cache(maxsize=1 << 16)
def _keys(word: str) -> tuple[tuple[int, str], ...]:
    """Return the position and the spelling of each term of a word."""
    return tuple((term.start, term.key) for term in find_terms([word]))


@functools.lru_cache(maxsize=1 << 16)
def _stems(language: str, word: str) -> tuple[tuple[int, str], ...]:
    """Return the position and the stem of each term of a word that isn't a stop word."""
    stop_words = _stop_words(language)
    stems = []
    for start, key in _keys(word):
        article, mark, noun = key.partition("'")
        if noun and len(article) <= _ELIDED.get(language, 0):
            start, key = start + len(article + mark), noun
        if key not in stop_words:
            stems.append((start, stem(key, language)))
    return tuple(stems)
