"""The parts of a grammar as read from its JSON form: settings of the attributes, rules, choices. See `grammar`."""

import math
import re
from fractions import Fraction
from typing import NamedTuple

from zentence.errors import ZentenceError, suggestion

MAX_ATTRIBUTES = 8
MAX_SETTINGS = 1_024
MAX_RULES = 20_000
MAX_CONDITIONS = 2_000
MAX_TEXT = 400
MAX_WEIGHT = 1_000_000
BITS = 53
_ITEM = re.compile(r"<[^\s<>]{1,64}>|[^\s<>]{1,64}")

Form = tuple[str, ...]
"""What is still to be read: words and symbols, leftmost first."""


class Rule(NamedTuple):
    """One alternative of a symbol; bit s of `mask` says whether setting s allows it."""

    number: int
    weight: int
    mask: int
    items: Form


class Choice(NamedTuple):
    """The alternatives of a symbol under one setting: item i is drawn below `cuts[i]` of 2**53 and not below before."""

    cuts: list[int]
    chances: list[float]
    items: list[Form]
    backwards: list[Form]
    log_probs: list[float]
    log_of: dict[int, float]


def failure(message: str) -> ZentenceError:
    """Return the error that says what is wrong with a grammar."""
    return ZentenceError(f"grammar: {message}")


def _alternatives(value: object, where: str) -> list[tuple[int, str, str]]:
    """Check and return a list of (weight, when, text)."""
    if not isinstance(value, list) or not 0 < len(value) <= MAX_RULES:
        raise failure(f"{where} must be a list of 1 to {MAX_RULES} alternatives [weight, when, text]")
    found: list[tuple[int, str, str]] = []
    for entry in value:
        if not isinstance(entry, list) or len(entry) != 3:
            raise failure(f"{where}: each alternative must be [weight, when, text]")
        weight, when, text = entry
        if type(weight) is not int or not 1 <= weight <= MAX_WEIGHT:
            raise failure(f"{where}: a weight must be a whole number from 1 to {MAX_WEIGHT}")
        for part in (when, text):
            if not isinstance(part, str) or len(part) > MAX_TEXT or not part.isprintable():
                raise failure(f"{where}: when and text must be printable strings of at most {MAX_TEXT} characters")
        found.append((weight, when, text))
    return found


def _holds(when: str, values: set[str], known: set[str], where: str) -> bool:
    """Say whether a condition holds for a set of attribute values; an unknown value in it is an error."""
    holds = True
    for term in when.split():
        options = term.split("/")
        for option in options:
            if option not in known:
                raise failure(f"{where}: no attribute has the value '{option}'.{suggestion(option, known)}")
        holds = holds and not values.isdisjoint(options)
    return holds


def thresholds(weights: list[int] | list[Fraction]) -> list[int]:
    """Cut the range of 2**53 draws in proportion to the weights; exact integers, the same on every machine."""
    total, passed, cuts = sum(weights), Fraction(0), []
    for weight in weights:
        passed += weight
        cuts.append(math.ceil(passed / total * (1 << BITS)))
    return cuts


def read_settings(data: object) -> tuple[list[dict[str, str]], list[Fraction], set[str]]:
    """Return every possible assignment of the attributes, its probability, and all attribute values."""
    if not isinstance(data, list) or len(data) > MAX_ATTRIBUTES:
        raise failure(f"attributes must be a list of at most {MAX_ATTRIBUTES} entries [name, alternatives]")
    settings: list[dict[str, str]] = [{}]
    chances = [Fraction(1)]
    known: set[str] = set()
    for entry in data:
        if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[0], str):
            raise failure("each attribute must be [name, alternatives]")
        name, where = entry[0], f"attribute {entry[0][:40]!r}"
        options = _alternatives(entry[1], where)
        values = {text for _, _, text in options}
        if name in settings[0] or values & known or any(not re.fullmatch(r"[^\s<>/]+", value) for value in values):
            raise failure(
                f"{where}: names and values must be single words, and no value may be shared by two attributes"
            )
        grown: list[dict[str, str]] = []
        grown_chances: list[Fraction] = []
        for setting, chance in zip(settings, chances, strict=True):
            able = [o for o in options if _holds(o[1], set(setting.values()), known, where)]
            total = sum(weight for weight, _, _ in able)
            if len({value for _, _, value in able}) != len(able) or not able:
                raise failure(f"{where}: for {setting} there must be at least one value, and each only once")
            grown += [{**setting, name: value} for _, _, value in able]
            grown_chances += [chance * weight / total for weight, _, _ in able]
            if len(grown) > MAX_SETTINGS:
                raise failure(f"more than {MAX_SETTINGS} combinations of attribute values")
        settings, chances = grown, grown_chances
        known |= values
    return settings, chances, known


def read_rules(data: object, settings: list[dict[str, str]], known: set[str]) -> dict[str, list[Rule]]:
    """Return the rules of each symbol (written `<name>`), their conditions turned into masks over the settings."""
    if not isinstance(data, dict) or "start" not in data or len(data) > MAX_RULES:
        raise failure("symbols must be an object of alternatives by symbol, with the symbol 'start'")
    values = [set(setting.values()) for setting in settings]
    masks: dict[str, int] = {}
    rules: dict[str, list[Rule]] = {}
    count = 0
    for name, entry in data.items():
        where = f"symbol {str(name)[:40]!r}"
        if not isinstance(name, str) or not _ITEM.fullmatch(f"<{name}>"):
            raise failure(f"{where}: a name must be 1 to 64 characters without spaces or angle brackets")
        rules[f"<{name}>"] = []
        for weight, when, text in _alternatives(entry, where):
            if when not in masks:
                masks[when] = sum(1 << i for i, held in enumerate(values) if _holds(when, held, known, where))
                if len(masks) > MAX_CONDITIONS:
                    raise failure(f"more than {MAX_CONDITIONS} different conditions")
            items = tuple(text.split())
            if not all(_ITEM.fullmatch(item) for item in items):
                raise failure(
                    f"{where}: {text[:60]!r} must be words and <symbols> between spaces, each at most 64 long"
                )
            rules[f"<{name}>"].append(Rule(count, weight, masks[when], items))
            count += 1
            if count > MAX_RULES:
                raise failure(f"more than {MAX_RULES} rules")
    return rules


def make_choice(rules: list[Rule]) -> Choice:
    """Return the choice between the rules of one symbol that one setting allows."""
    weights = [rule.weight for rule in rules]
    chances = [weight / sum(weights) for weight in weights]
    logs = [math.log(chance) for chance in chances]
    items = [rule.items for rule in rules]
    log_of = {rule.number: log for rule, log in zip(rules, logs, strict=True)}
    return Choice(thresholds(weights), chances, items, [i[::-1] for i in items], logs, log_of)
