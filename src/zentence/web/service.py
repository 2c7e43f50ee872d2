"""The moves that the service offers, as requests and answers; the moves themselves are LatentSpace's."""

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

import numpy as np
import tomli_w

from zentence.errors import ZentenceError
from zentence.evaluation.measurement import Measurement, read_results
from zentence.evaluation.verdict import verdict
from zentence.latent import LatentSpace, moves
from zentence.latent.card import KINDS
from zentence.latent.hub import public_settings
from zentence.latent.nearest import nearest, pair_scores
from zentence.parts import plain
from zentence.special import UNK
from zentence.web import requests as ask
from zentence.web.corpus import Corpus
from zentence.web.space import SharedSpace
from zentence.web.views import Views
from zentence.web.worker import Worker


class Service:
    """A model, perhaps a corpus, and the worker that owns the model.

    `model` is how commands on the page name the model, which is then on the reader's machine; without it, paths are
    not shown.
    """

    def __init__(
        self,
        space: LatentSpace,
        corpus: Corpus | None = None,
        *,
        worker: Worker | None = None,
        model: str | None = None,
    ) -> None:
        self.worker = worker or Worker()
        self.space = SharedSpace(space, self.worker)
        self.corpus = corpus
        self.views = None if corpus is None else Views(self.space, corpus)
        self.name = space.folder.resolve().name if space.folder is not None else "model"
        self.model, self.is_local = model or self.name, model is not None
        self.measurements = _measurements(space)

    def stop(self) -> None:
        """Stop the worker, and what goes on in the background."""
        if self.views is not None:
            self.views.stop()
        self.worker.stop()

    def card(self) -> ask.ModelCard:
        """Return what the model is and what is known of it."""
        settings, space = self.space.settings, self.space
        judged = verdict(self.measurements) if self.measurements else None
        return ask.ModelCard(
            name=self.name,
            model=self.model,
            has_code=space.model.has_code,
            size=space.size,
            vocabulary=len(space.vocabulary),
            parameters=sum(p.numel() for p in space.model.parameters()),
            max_words=space.max_words,
            state=judged.state if judged else "unknown",
            verdict=judged.text if judged else "No figures are stored with this model: nothing is known of it.",
            figures=[_figure(m) for m in self.measurements],
            kinds={kind: KINDS[kind] for kind in KINDS if kind in {m.kind for m in self.measurements}},
            settings=tomli_w.dumps(plain(public_settings(settings))),
            corpus=self._corpus_card(),
            limits={
                "sentences": ask.SENTENCES,
                "characters": ask.CHARACTERS,
                "words": ask.WORDS,
                "steps": ask.STEPS,
                "neighbours": ask.NEIGHBOURS,
                "body_bytes": ask.BODY,
            },
        )

    def _corpus_card(self) -> ask.CorpusCard | None:
        if (corpus := self.corpus) is None:
            return None
        labels = [ask.Label(name=name, count=count) for name, count in corpus.label_counts.items()]
        shown = corpus.name if self.is_local else PurePath(corpus.name).name
        file = corpus.file if self.is_local or corpus.file is None else PurePath(corpus.file).name
        counts = {"sentences": corpus.count, "points": len(corpus.sentences)}
        return ask.CorpusCard(name=shown, file=file, labels=labels, **counts)

    def points(self) -> ask.CorpusAnswer:
        """Return the sentences of the map."""
        corpus = self.need_views().corpus
        number = {name: place for place, name in enumerate(corpus.label_counts)}
        return ask.CorpusAnswer(
            sentences=corpus.sentences,
            lengths=[text.count(" ") + 1 for text in corpus.sentences],
            labels=list(number),
            label=None if corpus.labels is None else [number[label] for label in corpus.labels],
        )

    def need_views(self) -> Views:
        """Return the views of the corpus, or say that there is none."""
        if self.views is None:
            raise ZentenceError("The service has no corpus: start it with --corpus FILE")
        return self.views

    def encode(self, question: ask.EncodeQuestion) -> ask.CodesAnswer:
        """Return the codes of sentences."""
        warnings = self._read(question.sentences)
        codes = self.space.encode(question.sentences, sample=question.sample, seed=question.seed)
        return ask.CodesAnswer(codes=codes.tolist(), warnings=warnings)

    def decode(self, question: ask.DecodeQuestion) -> ask.SentencesAnswer:
        """Return the sentences of codes."""
        return ask.SentencesAnswer(sentences=self.space.decode(self._codes(question.codes), **question.options()))

    def reconstruct(self, question: ask.ReconstructQuestion) -> ask.SentencesAnswer:
        """Encode and decode."""
        warnings = self._read(question.sentences)
        ways: dict[str, Any] = {"sample": question.sample, "perturb": question.perturb}
        written = self.space.reconstruct(question.sentences, **ways, **question.options())
        return ask.SentencesAnswer(sentences=written, warnings=warnings)

    def interpolate(self, question: ask.InterpolateQuestion) -> ask.WalkAnswer:
        """Walk from one sentence to another."""
        warnings = self._read([question.start, question.end])
        space, seed = self.space, question.seed
        ends = moves.ends_between(space, question.start, question.end, sample=question.sample, seed=seed)
        way = moves.walk(space, ends, steps=question.steps, path=question.path, **question.options())
        center = space.prior_moments()[0] if question.path == "spherical" else None
        codes = moves.path_between(ends[0], ends[1], question.steps, question.path, center)
        codes = codes.reshape(question.steps, -1, space.size).mean(1)  # of L codes a sentence, their mean is shown
        written = [step.sentence for step in way]
        at = [step.at for step in way]
        return ask.WalkAnswer(sentences=written, at=at, codes=codes.tolist(), warnings=warnings)

    def analogy(self, question: ask.AnalogyQuestion) -> ask.AnalogyAnswer:
        """Return what is to C as B is to A."""
        texts = [question.a, question.b, question.c]
        warnings = self._read(texts)
        z_a, z_b, z_c = self.space.encode(texts)
        code = moves.analogy(z_a, z_b, z_c, question.strength)
        written = self.space.decode(code[None], **question.options())[0]
        return ask.AnalogyAnswer(sentence=written, code=code.tolist(), warnings=warnings)

    def edit(self, question: ask.EditQuestion) -> ask.EditAnswer:
        """Move sentences along an attribute's direction."""
        warnings = self._read(question.sentences)
        direction = self._side(question.add) - self._side(question.subtract)
        options = question.options()
        return ask.EditAnswer(
            sentences=self.space.edit(question.sentences, direction, strength=question.strength, **options),
            reconstructions=self.space.reconstruct(question.sentences, **options),
            norm=float(np.linalg.norm(direction)),
            warnings=warnings,
        )

    def _side(self, side: ask.Side) -> Any:
        if side.sentences is not None:
            self._read(side.sentences)
            return moves.mean_code(self.space, side.sentences).code
        return self.need_views().corpus.mean_code(str(side.label))

    def dimensions(self, sentence: str | None = None) -> ask.DimensionsAnswer:
        """Order the dimensions by what they cost on the corpus, or else on a sentence."""
        warnings: list[str] = []
        if self.views is not None:
            found = self.views.rates()
        elif sentence is None:
            raise ZentenceError("Without a corpus the dimensions are ordered by a sentence's own rates: give one")
        else:
            warnings = self._read([sentence])
            found = self.worker.alone(lambda: moves.rates_by_dimension(self.space.own, [sentence]))
        center, scale = self.space.prior_moments()
        return ask.DimensionsAnswer(
            order=found.order(),
            rates=found.values.tolist(),
            exact=found.exact,
            sentences=found.sentences,
            center=center.tolist(),
            scale=scale.tolist(),
            warnings=warnings,
        )

    def traverse(self, question: ask.TraverseQuestion) -> ask.TraverseAnswer:
        """Change a code in one dimension at a time."""
        code = self._codes([question.code])[0]
        how: dict[str, Any] = {"steps": question.steps, "span": question.span, **question.options()}
        return ask.TraverseAnswer(
            dimensions=[
                ask.Traversal(
                    dimension=walk.dimension,
                    own=walk.own,
                    at=[step.at for step in walk.steps],
                    sentences=[step.sentence for step in walk.steps],
                )
                for walk in moves.traverse(self.space, code, question.dimensions, **how)
            ]
        )

    def neighbours(self, question: ask.NeighboursQuestion) -> ask.NeighboursAnswer:
        """Return the corpus's sentences nearest to a sentence's code, or to a code."""
        corpus, warnings = self.need_views().corpus, list[str]()
        if question.sentence is not None:
            warnings = self._read([question.sentence])
            query = self.space.encode([question.sentence])
        else:
            query = self._codes([question.code or []])
        k = min(question.k, len(corpus.sentences))
        [row], _ = nearest(corpus.codes, query, k, question.metric)
        same = np.broadcast_to(query[0], (k, self.space.size))
        scores = [pair_scores(same, corpus.codes[row], metric).tolist() for metric in ("euclidean", "cosine")]
        hits = [
            ask.Neighbour(id=int(i), sentence=corpus.sentences[i], distance=distance, cosine=cosine)
            for i, distance, cosine in zip(row, *scores, strict=True)
        ]
        return ask.NeighboursAnswer(neighbours=hits, warnings=warnings)

    def sample(self, question: ask.SampleQuestion) -> ask.SentencesAnswer:
        """Write new sentences from the prior."""
        options = {name: value for name, value in question.options().items() if value is not None}
        if question.method is None and not self.space.model.has_code:
            options["method"] = "sample"
        return ask.SentencesAnswer(sentences=self.space.sample(question.count, scale=question.scale, **options))

    def project(self, question: ask.ProjectQuestion) -> ask.PointsAnswer:
        """Return where codes stand on a map."""
        x, y = self.need_views().place(self._codes(question.codes), question.method).T.tolist()
        return ask.PointsAnswer(x=x, y=y)

    def _codes(self, codes: Sequence[Sequence[float]]) -> Any:
        if not self.space.model.has_code:
            raise ZentenceError("This model is a language model: it has no codes")
        if any(len(code) != self.space.size for code in codes):
            raise ZentenceError(f"Codes of this model have {self.space.size} numbers each")
        return np.array(codes, dtype=np.float32)

    def _read(self, sentences: Sequence[str]) -> list[str]:
        """Refuse sentences without a word or with too many; return warnings of unknown words and of cuts."""
        warnings = []
        for place, (text, ids) in enumerate(
            zip(sentences, self.space.vocabulary.encode_batch(list(sentences)), strict=True), 1
        ):
            where, words = f"Sentence {place}" if len(sentences) > 1 else "The sentence", len(text.split())
            if len(ids) == 0:
                raise ZentenceError(f"{where} is empty: give at least one word")
            if len(ids) > ask.WORDS:
                raise ZentenceError(f"{where} has {len(ids):,} words: at most {ask.WORDS} are read")
            if (ids == UNK).all():
                warnings.append(f"no word of {text[:60]!r} is in this model's vocabulary")
            if self.space.max_words is not None and words > self.space.max_words:
                warnings.append(f"{where} has {words} words: only the first {self.space.max_words} are read")
        return warnings


def _figure(m: Measurement) -> ask.Figure:
    of = m.details.get("of")
    shown = {name: getattr(m, name) for name in ask.Figure.model_fields if name != "of"}
    return ask.Figure(of=of if isinstance(of, int) else None, **shown)


def _measurements(space: LatentSpace) -> list[Measurement]:
    """Return the figures of the split that was measured first."""
    path = None if space.folder is None else space.folder / "results.json"
    found = read_results(path) if path is not None and path.exists() else []
    return [m for m in found if m.split == found[0].split]
