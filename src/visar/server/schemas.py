"""The bodies of requests and answers, as OpenAPI describes them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from visar.public import MAX_QUESTION

Box = Annotated[
    tuple[float, float, float, float],
    Field(description="Left, top, right, bottom as shares of the page."),
]


class Body(BaseModel):
    """A request: what it does not know is a mistake."""

    model_config = ConfigDict(extra="forbid")


class Found(BaseModel):
    """A part of an answer, read from a result of the library."""

    model_config = ConfigDict(from_attributes=True)


class Problem(BaseModel):
    """An error, as RFC 9457 describes it."""

    type: str = "about:blank"
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["There is no document report.pdf in the index."])
    code: str = Field(description="For programs; never changes.", examples=["not_found"])


class Encoder(Found):
    """What made vectors."""

    name: str = Field(examples=["embedded"])
    version: str
    dimension: int


class Document(Found):
    """A document of the index."""

    id: str = Field(description="Made from its content.")
    name: str = Field(examples=["annual-report.pdf"])
    pages: int
    size: int = Field(description="Of the file, in bytes.")
    added: datetime
    encoders: list[Encoder]
    collections: list[str]


class Job(Found):
    """A document that is being added, or was."""

    id: str
    name: str
    encoder: str
    created: datetime
    state: Literal["waiting", "running", "done", "failed", "cancelled"]
    stage: str | None = Field(description="reading, ocr or encoding, while it runs.")
    pages_done: int
    pages: int = Field(description="0 while it is not known.")
    collection: str | None
    document: str | None = Field(description="The id of the document, once it is in the index.")
    code: str | None = Field(description="Why it failed: password, document or failed.")
    reason: str | None = Field(description="Why it failed, for people.")


class Uploaded(BaseModel):
    """What became of one file of several: a job, or a problem."""

    name: str
    job: Job | None = None
    problem: Problem | None = None


class Collection(BaseModel):
    """A named group of documents."""

    name: str
    documents: int


class Members(Body):
    """Documents of a collection."""

    documents: list[str] = Field(max_length=10_000)


class NewName(Body):
    """What a collection is called from now on."""

    name: str = Field(min_length=1, max_length=200)


class Password(Body):
    """Of an encrypted document. It is kept in memory only."""

    password: str | None = Field(default=None, max_length=1_000)


class Unlock(Body):
    """The password of an encrypted document. It is kept in memory only."""

    password: str = Field(min_length=1, max_length=1_000)


class Question(Body):
    """A question, what it is about, and how its pages are chosen."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"question": "How did capital expenditure change?", "max_k": 5}]
        },
    )

    question: str = Field(min_length=1, max_length=MAX_QUESTION)
    documents: list[str] | None = Field(
        default=None, max_length=1_000, description="Ids or names; all by default."
    )
    collection: str | None = Field(default=None, description="Instead of documents.")
    where: str | None = Field(
        default=None, max_length=1_000, description='Of metadata: year >= 2020 and kind = "report".'
    )
    exact: bool = Field(default=False, description="Compare every page of a large library.")
    encoder: str | None = Field(default=None, description="One of /encoders.")
    method: str = Field(default="visar", description="One of /methods.")
    k: int | None = Field(default=None, ge=1, description="How many pages top-k takes.")
    max_k: int | None = Field(default=None, ge=1, description="At most so many pages.")
    neighbors: int = Field(default=0, ge=0, le=10)


class AnswerQuestion(Question):
    """A question with what writes its answer."""

    generator: str | None = Field(default=None, description="One of /generators.")


class PageOf(Body):
    """A page of a document."""

    document: str = Field(description="The document's id.")
    page: int = Field(ge=1)


class PageQuestion(Question):
    """A question, and a page that was searched for it."""

    document: str = Field(description="The document's id.")
    page: int = Field(ge=1)


class PairQuestion(Question):
    """A question, and two pages that were searched for it."""

    first: PageOf
    second: PageOf


class Hit(Found):
    """A page that the question needs."""

    document: str
    name: str
    page: int = Field(description="1 for the first.")
    label: str = Field(description="The number printed on it, if it is another; else empty.")
    score: float
    late_interaction: float
    probability: float | None
    likelihood: Literal["likely", "possible", "unlikely"] | None
    snippet: str
    boxes: list[Box] = Field(description="Where the snippet stands.")
    beside: int | None


class Passage(Found):
    """A quotation from a page."""

    text: str
    document: str
    page: int
    weight: float = Field(description="How well it answers, compared with the others.")
    boxes: list[Box]
    answer: tuple[int, int] | None = Field(description="The characters that are the answer.")


class Search(Found):
    """The pages a question needs, and how many were searched."""

    question: str
    method: str
    pages: list[Hit]
    runner_up: Hit | None
    pages_searched: int
    candidates: int | None = Field(
        description="Of several documents: the pages that the method chose from."
    )
    pages_invalid: int
    k: int
    k_star: int
    strength: Literal["good", "weak", "none"]
    about: float | None
    seconds: float
    documents: list[Document]
    left_out: list[Document]
    summary: str = Field(description="How many pages, and why, in a sentence.")


class Citation(Found):
    """A page that a language model says it has read the answer from."""

    label: str
    document: str | None
    page: int | None
    was_given: bool


class Answer(Found):
    """An answer with the pages it rests on."""

    question: str
    text: str = Field(description="Empty if the documents do not hold an answer.")
    found: bool
    generator: str
    passages: list[Passage]
    citations: list[Citation]
    search: Search
    model: str | None
    input_tokens: int | None
    output_tokens: int | None


class QuestionWord(Found):
    """A word of the question."""

    text: str
    influence: float = Field(description="Its part in the weight of the chosen pages: 0 to 1.")
    vectors: list[int]


class SearchedPage(Found):
    """A page that was searched."""

    document: str
    page: int
    activity: float = Field(description="s_p relative to the largest: 0 to 1.")
    late_interaction: float
    rank: int


class MethodChoice(Found):
    """The pages that a method takes for the question."""

    method: str
    label: str = Field(examples=["Largest-Gap"])
    pages: list[int] = Field(description="Places in pages from 0, the method's best first.")
    seconds: float = Field(description="To choose them, without encoding the question.")
    tokens: int | None = Field(description="Of their text, about; null for more than 50 pages.")


class Explanation(Found):
    """What the method saw of a question."""

    words: list[QuestionWord]
    pages: list[SearchedPage]
    cost: list[float | None] = Field(description="J(1), J(2), …")
    k_star: int
    choices: list[MethodChoice] = Field(description="ViSAR first, a fixed top-k last.")
    matrix_size: int = Field(description="Rows of the matrix of /explain/matrix.")


class Patches(BaseModel):
    """The patches of a page, for its heat."""

    boxes: list[Box]
    weights: list[float] = Field(description="The method's, 0 to 1.")
    cosines: list[list[float]] = Field(description="With each vector of the question.")


class PatchPair(Found):
    """A patch of the first page, and what matches it best on the second."""

    first: Box
    second: Box
    words: tuple[str, str] = Field(description="Empty where a patch is not one word.")
    shared: float


class PageWord(Found):
    """A word of a page."""

    text: str
    box: Box
    line: int


class Page(Found):
    """A page with its words."""

    number: int
    label: str
    width: float
    height: float
    words: list[PageWord]


class Available(BaseModel):
    """What requests may choose from; the first is the default."""

    names: list[str]


class Health(BaseModel):
    """Whether the server answers."""

    status: Literal["ok"] = "ok"
    version: str


Schema = TypeVar("Schema", bound=Found)


def to_schema(kind: type[Schema], value: Any, **more: Any) -> Schema:
    """Read a schema from a result of the library, with what the result does not have."""
    fields = {name: getattr(value, name) for name in kind.model_fields if hasattr(value, name)}
    return kind.model_validate({**fields, **more}, from_attributes=True)
