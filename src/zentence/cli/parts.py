"""`zentence parts`."""

import shutil
import sys
import textwrap
from typing import Any

from zentence.cli.output import Json, print_json


def describe_options(part: type[Any]) -> dict[str, dict[str, Any]]:
    """Return a part's options with defaults and descriptions."""
    options = {}
    for name, field in part.Options.model_fields.items():
        default = field.get_default()
        plain = default.model_dump(mode="json") if hasattr(default, "model_dump") else default
        options[name] = {"default": None if field.is_required() else plain, "description": field.description}
    return options


def all_parts() -> list[dict[str, Any]]:
    """Return every part that can be chosen: family, name, what it is, its paper, its options."""
    from zentence.build import FAMILIES
    from zentence.objectives import OBJECTIVES, RATE_RULES
    from zentence.schedules import SCHEDULES
    from zentence.settings import CorruptionSettings
    from zentence.training.updates import UPDATES

    families = {**FAMILIES, "objective": OBJECTIVES, "rate_rule": RATE_RULES, "update": UPDATES, "schedule": SCHEDULES}
    rows = [
        {
            "family": family,
            "name": name,
            "description": " ".join((part.__doc__ or "").split("\n\n")[0].split()),
            "paper": getattr(part, "paper", ""),
            "options": describe_options(part),
        }
        for family, table in families.items()
        for name, part in table.items()
    ]
    for name, field in CorruptionSettings.model_fields.items():
        rows.append(
            {
                "family": "corruption",
                "name": name,
                "description": field.description or "",
                "paper": "",
                "options": {name: {"default": field.get_default(), "description": field.description}},
            }
        )
    return rows


def parts(json: Json = False) -> None:
    """List every part that can be chosen, with its options and the paper it comes from."""
    rows = all_parts()
    if json:
        print_json(rows)
        return
    terminal = sys.stdout.isatty()
    for row in rows:
        options = ", ".join(f"{name}={o['default']}" for name, o in row["options"].items())
        head = f"{row['family']} {row['name']}: {row['description']}"
        paper = f" [{row['paper']}]" if row["paper"] else ""
        if not terminal:
            print(f"{head}{paper} options: {options or 'none'}")
            continue
        width = max(60, shutil.get_terminal_size().columns)
        print(textwrap.fill(f"{head}{paper}", width, subsequent_indent="    "))
        for name, option in row["options"].items():
            text = f"{name} = {option['default']}: {option['description']}"
            print(textwrap.fill(text, width, initial_indent="    ", subsequent_indent="        "))
