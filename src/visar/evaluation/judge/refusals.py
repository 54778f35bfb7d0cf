"""The many ways to say that a question has no answer in the document."""

from __future__ import annotations

import re

_SOURCE = (
    r"(?:documents?|pages?|text|reports?|images?|passages?|context|slides?|figures?|tables?|"
    r"charts?|paper|pictures?|information|sources?|materials?|excerpts?|content)"
)
_SAID = (
    r"(?:answer(?:ed|able)?|mention(?:ed)?|specif(?:y|ied)|provided?|stated?|given?|available|"
    r"found|find|included?|shown?|present(?:ed)?|disclosed?|contain(?:ed)?|report(?:ed)?|"
    r"discuss(?:ed)?|indicated?|identif(?:y|ied)|listed|list|described?|say|said|visible|"
    r"determined?|known|inferred|infer|addressed?|covered?|clear|applicable|explained?|possible|tell|have|supported)"
)
_NOT = r"(?:not|n't|never|cannot)"
_REFUSAL = re.compile(
    rf"""
    \b(?:un|non-?)answerable\b
    | \b(?:is|are|was|were|be|been|do|does|did|can|could|has|have|had)?\s?{_NOT}
      \s(?:\w+ly\s|be\s|been\s|able\sto\s|possible\sto\s|to\s|currently\s){{0,3}}{_SAID}\b
    | \bcan'?t\b\s(?:be\s)?{_SAID}\b
    | \bunable\sto\s\w+
    | \bimpossible\sto\s(?:say|tell|answer|determine|know)
    | \b(?:insufficient|not\senough|not\ssufficient|no|lacks?|without|lack\sof|missing)
      \s(?:\w+\s){{0,2}}
      (?:information|data|mention|evidence|details?|answer|record|reference|indication)\b
    | \bno\ssuch\b
    | \bno\s(?:\w+\s){{1,4}}(?:is|are|was|were)\s(?:\w+ly\s)?{_SAID}\b
    | \b(?:nothing|nowhere|none)\b.{{0,40}}\b{_SOURCE}\b
    | \b{_SOURCE}\s(?:says?|gives?|contains?|provides?|has|have)\s(?:nothing|no)\b
    | \b(?:i\s)?don't\sknow\b | \bi\sdo\snot\sknow\b
    """,
    re.VERBOSE | re.IGNORECASE,
)
_WHOLE = re.compile(
    r"(?:n/?a|none|null|unknown|no answer|nil|not answerable|unanswerable|nothing)",
    re.IGNORECASE,
)
_REFERENCE = re.compile(
    r"(?:the question is |this question is )?(?:not answerable|unanswerable|no answer|"
    r"(?:can ?not|can't) be answered|not enough information|n/a)",
    re.IGNORECASE,
)
_GUESS = re.compile(
    r"\b(?:probably|likely|presumably|perhaps|estimated?|approximately|roughly|my (?:best )?guess|"
    r"i (?:would )?(?:guess|assume)|the answer is|would be|might be|could be|must be)\b",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s|\n")
# Something is named, of which something else is not said.
_IN_PASSING = re.compile(r",\s(?:which|who|whose|although|though)\b", re.IGNORECASE)


def means_not_answerable(reference: str) -> bool:
    """Whether a reference says that the question has no answer."""
    return bool(_REFERENCE.fullmatch(reference.strip(" .\"'")))


def refuses(answer: str) -> bool:
    """Whether a tidied answer says, in its first sentence, that there is none, and gives none.

    >>> refuses("The report does not mention camels."), refuses("It does not say, probably 2.")
    (True, False)
    """
    if _WHOLE.fullmatch(answer.strip(" .!\"'")):
        return True
    first = _SENTENCE_END.split(answer, maxsplit=1)[0]
    refusal = _REFUSAL.search(first)
    if refusal is None or _IN_PASSING.search(first, 0, refusal.start()):
        return False
    return not _GUESS.search(answer, refusal.end())
