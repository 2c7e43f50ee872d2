"""A probabilistic grammar without recursion whose every sentence has exactly one derivation.

A derivation first draws a *setting*, one value for each attribute (genre, topic, tense ...), and then expands the
symbol `start`. A rule may carry a condition on the setting, so that the attributes govern the whole sentence.
Since no sentence has two derivations, its probability is the product of the choices of its one derivation, and the
entropy of the sentences is that of the derivations, which a recursion over the rules gives exactly.

The form of the data, all of it plain JSON:

- `attributes`: list of `[name, [[weight, when, value], ...]]`, drawn in this order;
- `symbols`: `{name: [[weight, when, text], ...]}`, where text is words and `<symbol>` references between spaces.

A weight is a positive integer. `when` is a conjunction of terms between spaces, each one value or several joined by
`/` ("beach/park plural"); the empty string always holds. An attribute's condition sees the attributes before it.
"""

import math
import operator
from bisect import bisect_right
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cached_property
from typing import NamedTuple

import numpy as np

from zentence.corpora.grammar_rules import (
    BITS,
    Choice,
    Form,
    failure,
    make_choice,
    read_rules,
    read_settings,
    thresholds,
)
from zentence.errors import ZentenceError, suggestion

MAX_WORDS = 200
MAX_DEPTH = 60
MAX_STEPS = 300_000  # rules applied to find the ways to read one more word
MAX_VISITS = 20_000_000  # ways looked at to verify that each sentence has one derivation
MAX_MOVES = 200_000  # remembered by the parser; then it starts afresh
_START = "<start>"
_END = ""


class Sentence(NamedTuple):
    """One sentence of the source: text (words between single spaces), log-probability in nats, attribute values."""

    text: str
    log_prob: float
    attributes: dict[str, str]


class _Edge(NamedTuple):
    """A way to read one word: the settings that allow it, the form left, the (symbol, rule) steps before the word."""

    mask: int
    form: Form
    steps: tuple[tuple[str, int], ...]


class _Node:
    """All forms that may follow one beginning of a sentence, each with the settings under which it may."""

    __slots__ = ("forms", "moves")

    def __init__(self, forms: dict[Form, int]) -> None:
        self.forms = forms
        self.moves: dict[str, tuple[_Node, dict[Form, list[tuple[Form, _Edge]]]]] = {}


class Grammar:
    """A source of sentences of known probability; build it with `from_json`."""

    version: int
    name: str

    def __init__(self, data: object, *, check: bool) -> None:
        if not isinstance(data, dict):
            raise failure("must be an object with name, version, attributes and symbols")
        version, name = data.get("version"), data.get("name")
        if type(version) is not int or version < 1 or not isinstance(name, str) or not 0 < len(name) <= 100:
            raise failure("needs a version (a whole number from 1) and a name (1 to 100 characters)")
        self.version, self.name, self._data = version, name, data
        self._values, self._chances, known = read_settings(data.get("attributes"))
        self._rules = read_rules(data.get("symbols"), self._values, known)
        self._everything = (1 << len(self._values)) - 1
        self._longest(_START, {}, 0)
        self._logs = [math.log(chance) for chance in self._chances]
        self._cuts = thresholds(self._chances)
        self._tables = self._resolve()
        self._edges: dict[Form, dict[str, list[_Edge]]] = {(): {}}
        self._nodes: dict[frozenset[tuple[Form, int]], _Node] = {}
        self._moves = self._steps = 0
        self._root = _Node({(_START, _END): self._everything})
        if check:
            self.check_unambiguous()

    @classmethod
    def from_json(cls, data: object) -> "Grammar":
        """Build a grammar from what `to_json` gives; ZentenceError if it is damaged, too large or ambiguous."""
        return cls(data, check=True)

    def to_json(self) -> dict[str, object]:
        """Return the complete grammar as plain JSON data."""
        return deepcopy({key: self._data[key] for key in ("name", "version", "attributes", "symbols")})

    def _longest(self, symbol: str, known: dict[str, int], depth: int) -> int:
        """Bound the words a symbol can give, conditions aside; refuses recursion, unknown symbols, long sentences."""
        if symbol in known:
            if known[symbol] < 0:
                raise failure(f"symbol {symbol} leads back to itself; recursion is not allowed")
            return known[symbol]
        if symbol not in self._rules:
            raise failure(f"no symbol {symbol}.{suggestion(symbol, self._rules)}")
        if depth > MAX_DEPTH:
            raise failure(f"symbols are nested deeper than {MAX_DEPTH}")
        known[symbol] = -1
        best = 0
        for rule in self._rules[symbol]:
            best = max(best, sum(self._longest(i, known, depth + 1) if i[0] == "<" else 1 for i in rule.items))
        if best > MAX_WORDS:
            raise failure(f"symbol {symbol} can give more than {MAX_WORDS} words")
        known[symbol] = best
        return best

    def _resolve(self) -> list[dict[str, Choice]]:
        """Return, for each setting, the choices of each symbol that can be reached under it."""
        shared: dict[tuple[int, ...], Choice] = {}
        tables: list[dict[str, Choice]] = []
        for index, values in enumerate(self._values):
            table: dict[str, Choice] = {}
            todo = [_START]
            while todo:
                symbol = todo.pop()
                if symbol in table:
                    continue
                able = [rule for rule in self._rules[symbol] if rule.mask >> index & 1]
                if not able:
                    raise failure(f"symbol {symbol} has no alternative for {values}")
                key = tuple(rule.number for rule in able)
                if key not in shared:
                    shared[key] = make_choice(able)
                table[symbol] = shared[key]
                todo += [item for rule in able for item in rule.items if item[0] == "<"]
            tables.append(table)
        return tables

    @cached_property
    def words(self) -> frozenset[str]:
        """Every word that some sentence contains."""
        forms = (form for table in self._tables for choice in table.values() for form in choice.items)
        return frozenset(item for form in set(forms) for item in form if item[0] != "<")

    @cached_property
    def entropy(self) -> float:
        """Entropy of the source in nats per sentence: of each choice, times how often it is expected to be made."""
        own = math.fsum(-float(p) * log for p, log in zip(self._chances, self._logs, strict=True))
        return own + self._expected(0.0, lambda c: -math.fsum(map(operator.mul, c.chances, c.log_probs)))

    @cached_property
    def mean_length(self) -> float:
        """Expected number of words per sentence, punctuation counted."""
        return self._expected(1.0, lambda _: 0.0)

    def _expected(self, per_word: float, per_choice: Callable[[Choice], float]) -> float:
        """Return the expectation over derivations of a sum over their words and choices."""

        def value(item: str, table: dict[str, Choice], known: dict[str, float]) -> float:
            if item[0] != "<":
                return per_word
            if item not in known:
                choice = table[item]
                each = (sum(value(part, table, known) for part in form) for form in choice.items)
                known[item] = per_choice(choice) + math.fsum(map(operator.mul, choice.chances, each))
            return known[item]

        pairs = zip(self._chances, self._tables, strict=True)
        return math.fsum(float(chance) * value(_START, table, {}) for chance, table in pairs)

    def sample(self, count: int, seed: int) -> Iterator[Sentence]:
        """Yield `count` independent sentences; the same seed gives the same sentences on every machine."""
        if seed < 0 or count < 0:
            raise ZentenceError("a seed and a number of sentences cannot be negative")
        return self._sample(count, _draws(seed))

    def _sample(self, count: int, draw: Iterator[int]) -> Iterator[Sentence]:
        for _ in range(count):
            setting = bisect_right(self._cuts, next(draw))
            table, log_prob = self._tables[setting], self._logs[setting]
            words: list[str] = []
            stack = [_START]
            while stack:
                item = stack.pop()
                if item[0] != "<":
                    words.append(item)
                    continue
                cuts, _, _, backwards, log_probs, _ = table[item]
                chosen = bisect_right(cuts, next(draw)) if len(cuts) > 1 else 0
                log_prob += log_probs[chosen]
                stack += backwards[chosen]
            yield Sentence(" ".join(words), log_prob, self._values[setting].copy())

    def log_prob(self, text: str) -> float:
        """Return the log-probability of a sentence in nats; minus infinity if the grammar cannot make it."""
        found = self._parse(text)
        return -math.inf if found is None else found[1]

    def attributes(self, text: str) -> dict[str, str] | None:
        """Return the attribute values of a sentence; None if the grammar cannot make it."""
        found = self._parse(text)
        return None if found is None else self._values[found[0]].copy()

    def _parse(self, text: str) -> tuple[int, float] | None:
        """Return the setting and the log-probability of the one derivation, read forwards and traced backwards."""
        node, trail = self._root, []
        for word in (*text.split(" "), _END):
            move = node.moves.get(word) or self._move(node, word)
            if move is None:
                return None
            node, sources = move
            trail.append(sources)
        setting = node.forms[()].bit_length() - 1
        form: Form = ()
        steps: list[tuple[str, int]] = []
        for sources in reversed(trail):
            form, edge = next(source for source in sources[form] if source[1].mask >> setting & 1)
            steps += edge.steps[::-1]
        table, log_prob = self._tables[setting], self._logs[setting]
        for symbol, number in reversed(steps):
            log_prob += table[symbol].log_of[number]
        return setting, log_prob

    def _move(self, node: _Node, word: str) -> tuple[_Node, dict[Form, list[tuple[Form, _Edge]]]] | None:
        """Read one word after a node and remember the result; None if no sentence goes on so."""
        forms: dict[Form, int] = {}
        sources: dict[Form, list[tuple[Form, _Edge]]] = {}
        for form, mask in node.forms.items():
            for edge in self._ways(form).get(word, ()):
                if both := mask & edge.mask:
                    forms[edge.form] = forms.get(edge.form, 0) | both
                    sources.setdefault(edge.form, []).append((form, _Edge(both, edge.form, edge.steps)))
        if not forms:
            return None
        if self._moves >= MAX_MOVES:
            self._moves = 0
            self._nodes.clear()
            self._root.moves.clear()
        self._moves += 1
        node.moves[word] = move = (self._nodes.setdefault(frozenset(forms.items()), _Node(forms)), sources)
        return move

    def _ways(self, form: Form) -> dict[str, list[_Edge]]:
        """Return the ways to read one word of a form, by word, each a leftmost derivation up to that word."""
        if form in self._edges:
            return self._edges[form]
        ways: dict[str, list[_Edge]] = {}
        stack = [_Edge(self._everything, form, ())]
        while stack:
            mask, (head, *rest), steps = stack.pop()
            if head[:1] != "<":
                ways.setdefault(head, []).append(_Edge(mask, tuple(rest), steps))
                continue
            self._steps += len(self._rules[head])
            if self._steps > MAX_STEPS:
                raise failure("too large to parse")
            stack += [
                _Edge(mask & rule.mask, (*rule.items, *rest), (*steps, (head, rule.number)))
                for rule in self._rules[head]
                if mask & rule.mask
            ]
        self._edges[form] = ways
        return ways

    def check_unambiguous(self) -> int:
        """Raise ZentenceError if some sentence has two derivations; else return the number of nodes looked at.

        The check is complete: it visits every set of forms that some beginning of a sentence leaves, with the settings
        under which each is left. Every form can be finished under each of its settings, so two derivations of one
        sentence exist exactly if one form is reached in two ways under one setting, or the end under two settings.
        """
        todo = [(self._root.forms, "")]
        seen = {frozenset(self._root.forms.items())}
        visits = 0
        while todo:
            forms, prefix = todo.pop()
            visits += sum(len(self._ways(form)) for form in forms)
            if visits > MAX_VISITS:
                raise failure("too large to verify that each sentence has one derivation")
            for word, targets in self._reach(forms, prefix).items():
                key = frozenset(targets.items())
                if word == _END:
                    if targets[()].bit_count() > 1 or not prefix:
                        raise failure(f"two derivations give {prefix[:200]!r}" if prefix else "a sentence may be empty")
                elif key not in seen:
                    seen.add(key)
                    todo.append((targets, f"{prefix} {word}".strip()))
        return len(seen)

    def _reach(self, forms: dict[Form, int], prefix: str) -> dict[str, dict[Form, int]]:
        """Return the forms left by each next word; raises if one form is reached twice under one setting."""
        reached: dict[str, dict[Form, int]] = {}
        for form, mask in forms.items():
            for word, edges in self._ways(form).items():
                for edge in edges:
                    if both := mask & edge.mask:
                        targets = reached.setdefault(word, {})
                        old = targets.get(edge.form, 0)
                        if old & both:
                            raise failure(f"two derivations begin {f'{prefix} {word}'.strip()[:200]!r}")
                        targets[edge.form] = old | both
        return reached


def _draws(seed: int) -> Iterator[int]:
    """Yield whole numbers below 2**53, from the raw output of PCG64, which numpy promises never to change."""
    bits = np.random.PCG64(seed)
    while True:
        yield from (bits.random_raw(4096) >> np.uint64(64 - BITS)).tolist()
