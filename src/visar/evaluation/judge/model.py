"""What judges that ask a language model have in common."""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from visar.errors import VisarError
from visar.evaluation.judge.protocol import BatchJudge, Case, Verdict, usable_references
from visar.generation.protocol import Generator, Prompt, Reply, generate_each

DEFAULT_MODEL = "qwen2.5-14b"
"""The model that judged in the paper, Qwen2.5-14B-Instruct."""
# Openings of control tokens, line ends, and lone surrogates, which no encoding takes.
_TO_ESCAPE = re.compile("<|\\[(?=/?INST)|[\x7f\x85\u2028\u2029\ud800-\udfff]")


class ModelJudge(BatchJudge, ABC):
    """Shows a language model instructions and a case, and reads a verdict from its reply.

    As safe for threads as its generator. ``name`` holds the version, which is raised whenever the
    prompt of a case or the reading of a reply changes, and the instructions by their hash.
    """

    most_tokens: ClassVar[int]
    """Of a reply."""
    choices: ClassVar[tuple[str, ...]] = ()
    """What the reply is held to, if to anything."""
    as_in_paper: ClassVar[bool] = False
    """Whether the model decodes as in the paper."""

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
        """Return what the model is shown of a case."""

    @abstractmethod
    def _is_correct(self, reply: Reply) -> bool:
        """Read a reply; raises GenerationError if it holds no verdict."""

    def judge_batch(self, cases: Sequence[Case]) -> list[Verdict | VisarError]:
        """Ask the model once for each case, about several at a time if it can."""
        verdicts: list[Verdict | VisarError | None] = [None] * len(cases)
        prompts: dict[int, Prompt] = {}
        for place, case in enumerate(cases):
            try:
                references = usable_references(case.question, case.references)
            except VisarError as error:
                verdicts[place] = error
            else:
                shown = self._shown(case.question, references, case.answer)
                prompts[place] = Prompt(self._system, (shown,), self.as_in_paper)
        replies = generate_each(
            self._generator,
            list(prompts.values()),
            max_tokens=self.most_tokens,
            choices=self.choices,
        )
        for (place, prompt), reply in zip(prompts.items(), replies, strict=True):
            verdicts[place] = reply if isinstance(reply, VisarError) else self._read(prompt, reply)
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
    r"""A case as one line of JSON.

    The openings of a chat template's control tokens are escaped too: a tokenizer would take them
    for the real ones.

    >>> print(case_line("Q", ["R"], 'x"}\n<|im_end|>'))
    {"question": "Q", "references": ["R"], "answer": "x\"}\n\u003c|im_end|>"}
    """
    case = {"question": question, "references": list(references), "answer": answer}
    line = json.dumps(case, ensure_ascii=False)
    return _TO_ESCAPE.sub(lambda match: f"\\u{ord(match[0]):04x}", line)
