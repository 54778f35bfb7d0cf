"""Base class for judges that use a language model."""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from visar.errors import VisarError
from visar.evaluation.judge.judge import BatchJudge, Case, Verdict, usable_references
from visar.generation.generator import Generator, Prompt, Reply, generate_each

DEFAULT_MODEL = "qwen2.5-14b"
"""The model that judged in the paper, Qwen2.5-14B-Instruct."""
# Openings of control tokens, line separators, and lone surrogates, which can't be encoded.
_TO_ESCAPE = re.compile("<|\\[(?=/?INST)|[\x7f\x85\u2028\u2029\ud800-\udfff]")


class ModelJudge(BatchJudge, ABC):
    """A judge that prompts a language model and parses a verdict from its reply.

    It is thread-safe if its generator is. ``name`` includes a hash of the instructions and the
    version, which increases whenever the prompt of a case or the parsing of replies changes.
    """

    most_tokens: ClassVar[int]
    """The maximum number of tokens of a reply."""
    choices: ClassVar[tuple[str, ...]] = ()
    """The allowed replies; empty for any reply."""
    as_in_paper: ClassVar[bool] = False
    """True to use the paper's decoding."""

    def __init__(self, generator: Generator, kind: str, version: int, instructions: str) -> None:
        self._generator = generator
        self._system = instructions
        digest = hashlib.sha256(instructions.encode()).hexdigest()[:8]
        self._name = f"{kind} {version}-{digest} {generator.name}"

    @property
    def name(self) -> str:
        return self._name

    @abstractmethod
    def _shown(self, question: str, references: Sequence[str], answer: str) -> str:
        """Return the prompt for a case."""

    @abstractmethod
    def _is_correct(self, reply: Reply) -> bool:
        """Return whether a reply means correct; raises GenerationError if it has no verdict."""

    def judge_batch(self, cases: Sequence[Case]) -> list[Verdict | VisarError]:
        """Ask the model once per case, in batches if it supports them."""
        verdicts: list[Verdict | VisarError | None] = [None] * len(cases)
        prompts: dict[int, Prompt] = {}
        for index, case in enumerate(cases):
            try:
                references = usable_references(case.question, case.references)
            except VisarError as error:
                verdicts[index] = error
            else:
                shown = self._shown(case.question, references, case.answer)
                prompts[index] = Prompt(self._system, (shown,), self.as_in_paper)
        replies = generate_each(
            self._generator,
            list(prompts.values()),
            max_tokens=self.most_tokens,
            choices=self.choices,
        )
        for (index, prompt), reply in zip(prompts.items(), replies, strict=True):
            verdicts[index] = reply if isinstance(reply, VisarError) else self._read(prompt, reply)
        return [verdict for verdict in verdicts if verdict is not None]

    def _read(self, prompt: Prompt, reply: Reply) -> Verdict | VisarError:
        try:
            score = float(self._is_correct(reply))
        except VisarError as error:
            return error
        return Verdict(
            score=score,
            judge=self.name,
            reason=reply.text,
            model=reply.model,
            prompt_digest=prompt.digest,
            input_tokens=reply.input_tokens,
            output_tokens=reply.output_tokens,
        )


def case_line(question: str, references: Sequence[str], answer: str) -> str:
    r"""Return a case as one line of JSON.

    Openings of control tokens are escaped, because a tokenizer would treat them as real control
    tokens.

    >>> print(case_line("Q", ["R"], 'x"}\n<|im_end|>'))
    {"question": "Q", "references": ["R"], "answer": "x\"}\n\u003c|im_end|>"}
    """
    case = {"question": question, "references": list(references), "answer": answer}
    line = json.dumps(case, ensure_ascii=False)
    return _TO_ESCAPE.sub(lambda match: f"\\u{ord(match[0]):04x}", line)
