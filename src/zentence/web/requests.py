"""What the service is asked, with its limits, and what it answers; the OpenAPI description is made of these."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from zentence.decoders.generation import Generation
from zentence.latent.nearest import Metric

SENTENCES, CHARACTERS, WORDS = 64, 2000, 200  # of a request; of a sentence
STEPS, NEIGHBOURS, DIMENSIONS = 50, 100, 4096
SEED = 2**31 - 1
BODY = 1 << 20  # bytes

Sentence = Annotated[str, StringConstraints(min_length=1, max_length=CHARACTERS)]
Sentences = Annotated[list[Sentence], Field(min_length=1, max_length=SENTENCES)]
Number = Annotated[float, Field(ge=-1e6, le=1e6, allow_inf_nan=False)]
Code = Annotated[list[Number], Field(min_length=1, max_length=DIMENSIONS)]
CodeList = Annotated[list[Code], Field(min_length=1, max_length=SENTENCES)]
Strength = Annotated[float, Field(ge=-100.0, le=100.0, allow_inf_nan=False, description="Factor of the difference.")]
Seed = Annotated[int, Field(ge=0, le=SEED, description="Everything random follows from it.")]
Perturbation = Annotated[
    float, Field(ge=0.0, le=1000.0, allow_inf_nan=False, description="Posterior standard deviations × noise.")
]
PathName = Literal["linear", "spherical"]
MapMethod = Literal["pca", "tsne"]


class Question(BaseModel):
    """A request: nothing unknown in it, and no number that is none."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Writing(Question):
    """How words are chosen, within the service's limits."""

    method: Literal["greedy", "sample", "beam"] = Field("greedy", description="How words are chosen.")
    max_words: int = Field(100, ge=1, le=WORDS, description="Longest sentence.")
    temperature: float = Field(1.0, ge=0.01, le=100.0, description="Sampling: scores are divided by it.")
    top_k: int | None = Field(None, ge=1, le=1_000_000, description="Sampling: only the k best words.")
    top_p: float | None = Field(None, gt=0.0, le=1.0, description="Sampling: the fewest words with this probability.")
    beam: int = Field(5, ge=1, le=10, description="Beam search: sentences kept.")
    forbid_unknown: bool = Field(False, description="Never write <unk>.")
    seed: Seed = 0

    def options(self) -> dict[str, Any]:
        """Return them as options of `Generation`, those that stand as they are left out."""
        chosen = {name: getattr(self, name) for name in Writing.model_fields}
        return {name: value for name, value in chosen.items() if value != Generation.model_fields[name].default}


class EncodeQuestion(Question):
    """Sentences, for their codes."""

    sentences: Sentences
    sample: bool = Field(False, description="Posterior samples, not means.")
    seed: Seed = 0


class DecodeQuestion(Writing):
    """Codes [N, D], for their sentences."""

    codes: CodeList


class ReconstructQuestion(Writing):
    """Sentences, to be encoded and decoded."""

    sentences: Sentences
    sample: bool = Field(False, description="From a posterior sample, not the mean.")
    perturb: Perturbation | None = None

    @model_validator(mode="after")
    def _one_way(self) -> "ReconstructQuestion":
        if self.sample and self.perturb is not None:
            raise ValueError("give sample or perturb, not both")
        return self


class InterpolateQuestion(Writing):
    """Two sentences, and the way between them."""

    start: Sentence
    end: Sentence
    steps: int = Field(7, ge=2, le=STEPS, description="Points on the way, ends included.")
    path: PathName = "linear"
    sample: bool = Field(False, description="Between posterior samples, not means.")


class AnalogyQuestion(Writing):
    """A : B :: C : ?"""

    a: Sentence
    b: Sentence
    c: Sentence
    strength: Strength = 1.0


class Side(Question):
    """One side of a direction: a label of the corpus, or sentences."""

    label: str | None = Field(None, min_length=1, max_length=CHARACTERS)
    sentences: Sentences | None = None

    @model_validator(mode="after")
    def _one_side(self) -> "Side":
        if (self.label is None) == (self.sentences is None):
            raise ValueError("give a label or sentences, one of the two")
        return self


class EditQuestion(Writing):
    """Sentences to move along the direction from one side's mean code to the other's."""

    sentences: Sentences
    add: Side
    subtract: Side
    strength: Strength = 1.0


class TraverseQuestion(Writing):
    """A code, to be changed in one dimension at a time."""

    code: Code
    dimensions: list[Annotated[int, Field(ge=0, lt=DIMENSIONS)]] = Field(min_length=1, max_length=8)
    steps: int = Field(7, ge=2, le=STEPS)
    span: float = Field(3.0, gt=0.0, le=100.0, description="Standard deviations of the prior.")


class NeighboursQuestion(Question):
    """A sentence or a code, for the corpus's sentences that are nearest."""

    sentence: Sentence | None = None
    code: Code | None = None
    k: int = Field(10, ge=1, le=NEIGHBOURS)
    metric: Metric = "euclidean"

    @model_validator(mode="after")
    def _one_query(self) -> "NeighboursQuestion":
        if (self.sentence is None) == (self.code is None):
            raise ValueError("give a sentence or a code, one of the two")
        return self


class SampleQuestion(Writing):
    """New sentences from the prior."""

    count: int = Field(10, ge=1, le=SENTENCES)
    scale: float = Field(1.0, ge=0.0, le=100.0, description="Spread of the prior's codes; 1: the prior.")
    method: Literal["greedy", "sample", "beam"] | None = Field(  # type: ignore[assignment]
        None, description="How words are chosen; default: greedy (a language model: sample)."
    )


class ProjectQuestion(Question):
    """Codes, for their places on a map."""

    codes: CodeList
    method: MapMethod = "pca"


class Answer(BaseModel):
    """What every answer may carry."""

    warnings: list[str] = Field(default_factory=list, description="What was not as it should be, and was done anyway.")


class CodesAnswer(Answer):
    """Codes [N, D]."""

    codes: list[list[float]]


class SentencesAnswer(Answer):
    """Sentences, in the order of the request."""

    sentences: list[str]


class WalkAnswer(SentencesAnswer):
    """Sentences on a way, and where it goes."""

    at: list[float]
    codes: list[list[float]]


class EditAnswer(SentencesAnswer):
    """Edited sentences, what they are without the edit, and how long the direction is."""

    reconstructions: list[str]
    norm: float


class AnalogyAnswer(Answer):
    """What is to C as B is to A, and its code."""

    sentence: str
    code: list[float]


class Traversal(BaseModel):
    """What is written along a dimension; `at` and `own` in standard deviations of the prior from its centre."""

    dimension: int
    own: float
    at: list[float]
    sentences: list[str]


class TraverseAnswer(Answer):
    """A walk for each dimension."""

    dimensions: list[Traversal]


class DimensionsAnswer(Answer):
    """Dimensions, the most informative first: nats each costs, and the prior's centre and scale in each."""

    order: list[int]
    rates: list[float]
    exact: bool
    sentences: int
    center: list[float]
    scale: list[float]


class Neighbour(BaseModel):
    """A sentence of the corpus."""

    id: int
    sentence: str
    distance: float
    cosine: float


class NeighboursAnswer(Answer):
    """Nearest first."""

    neighbours: list[Neighbour]


class Figure(BaseModel):
    """A measurement as the model card shows it."""

    name: str
    value: float
    of: int | None = Field(description="Of how many, where it is a count.")
    unit: str
    kind: str
    standard_error: float | None
    count: int
    samples: int | None
    split: str


class Label(BaseModel):
    """A label of the corpus, and how many points have it."""

    name: str
    count: int


class CorpusCard(BaseModel):
    """The text that the map shows."""

    name: str
    file: str | None = Field(description="How commands name it, where it is one file.")
    sentences: int
    points: int
    labels: list[Label]


class ModelCard(BaseModel):
    """What the model is, and what is known of it."""

    name: str
    model: str = Field(description="How commands name it.")
    has_code: bool
    size: int
    vocabulary: int
    parameters: int
    max_words: int | None
    state: str
    verdict: str
    figures: list[Figure]
    kinds: dict[str, str]
    settings: str = Field(description="TOML.")
    corpus: CorpusCard | None
    limits: dict[str, float]


class CorpusAnswer(BaseModel):
    """The points of the map: sentence, length in words, and number of the label in `labels`."""

    sentences: list[str]
    lengths: list[int]
    labels: list[str]
    label: list[int] | None


class Progressing(BaseModel):
    """Something that takes a while: `running` until it is `ready`, or why it never will be."""

    status: Literal["running", "ready", "failed"]
    done: float = Field(0.0, description="Share, 0 to 1; 0 where it is not known.")
    reason: str | None = None


class MapAnswer(Progressing):
    """Places of the points, once they are ready."""

    x: list[float] | None = None
    y: list[float] | None = None
    axes: list[str] | None = None


class LikelihoodsAnswer(Progressing):
    """log p(x) of each point in nats, a lower bound, once they are ready."""

    values: list[float] | None = None
    samples: int = 0


class PointsAnswer(Answer):
    """Places of codes on a map."""

    x: list[float]
    y: list[float]


class Health(BaseModel):
    """Alive."""

    status: Literal["ok"] = "ok"
    calls: int = Field(0, description="Shared model calls so far.")
    jobs: int = Field(0, description="Jobs that they answered.")


class Problem(BaseModel):
    """Why a request was refused."""

    detail: str
