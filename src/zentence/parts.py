"""How a part is named, found, configured and described: the same for every family.

A family is a plain dictionary from names to classes. A part is a class with a nested `Options` model, whose fields
carry their own descriptions, and a class attribute `paper`. Parts from elsewhere are named `package.module:Class`.
"""

import importlib
from collections.abc import Mapping
from types import NoneType
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from zentence.errors import ZentenceError, suggestion


class Options(BaseModel):
    """Base of every part's options: typed, frozen, unknown names refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _read_none(cls, given: Any) -> Any:
        """Read the word "none" as no value, where a field may have none: TOML has no word for it."""
        if not isinstance(given, dict):
            return given
        open_fields = {name for name, field in cls.model_fields.items() if NoneType in get_args(field.annotation)}
        return {name: None if name in open_fields and value == "none" else value for name, value in given.items()}


class Part(BaseModel):
    """The choice of a part: its name, and its options as further keys."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: str

    @property
    def options(self) -> dict[str, Any]:
        """The options given, as plain values."""
        return dict(self.model_extra or {})


P = TypeVar("P")


def plain(options: BaseModel) -> dict[str, Any]:
    """Return options as values that TOML and JSON can hold; no value is written as the word "none"."""
    content: dict[str, Any] = _write_none(options.model_dump(mode="json"))
    return content


def _write_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _write_none(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_write_none(entry) for entry in value]
    return "none" if value is None else value


_ALTERNATIVES = ("float", "constrained-float", "Part")  # pydantic names the alternatives of a union in locations


def find_part(family: str, table: Mapping[str, type[P]], name: str) -> type[P]:
    """Return the class called `name` in a family's table, or the outside class `package.module:Class`."""
    if name in table:
        return table[name]
    if ":" in name:
        module_name, _, class_name = name.partition(":")
        try:
            found: type[P] = getattr(importlib.import_module(module_name), class_name)
        except (ImportError, AttributeError) as error:
            raise ZentenceError(f"Cannot load {family} '{name}': {error}") from error
        return found
    raise ZentenceError(f"Unknown {family} '{name}'.{suggestion(name, table)}")


def parse_options(where: str, model: type[BaseModel], given: Mapping[str, Any]) -> Any:
    """Validate options; a mistake becomes one line that names the setting."""
    try:
        return model.model_validate(dict(given))
    except ValidationError as error:
        raise ZentenceError(describe_mistake(where, model, error)) from None


def describe_mistake(where: str, model: type[BaseModel], error: ValidationError) -> str:
    """Say in one line what is wrong with a setting, and what was meant."""
    first = error.errors()[0]
    path = ".".join([where, *(str(step) for step in first["loc"] if step not in _ALTERNATIVES)]).strip(".")
    if first["type"] == "extra_forbidden":
        fields = _fields_at(model, first["loc"][:-1])
        return f"Unknown setting '{path}'.{suggestion(str(first['loc'][-1]), fields)}"
    if first["type"] == "missing":
        return f"Setting '{path}' is missing."
    message = first["msg"].removeprefix("Value error, ")
    return f"Setting '{path}' = {first['input']!r}: {message[0].lower()}{message[1:]}."


def _fields_at(model: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """Return the names of the fields of the nested model that a location points at."""
    for step in path:
        if isinstance(step, int) or step not in model.model_fields:
            continue
        annotation = model.model_fields[step].annotation
        candidates = [annotation, *getattr(annotation, "__args__", ())]
        models = [c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)]
        if models:
            model = models[0]
    return list(model.model_fields)
