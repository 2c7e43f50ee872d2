"""Rooms import one way only, and stay small."""

import ast
from pathlib import Path

import zentence

SOURCE = Path(zentence.__file__).parent
FLOORS = [  # a room imports its own and earlier floors; part families never each other
    {"errors", "special", "noise", "types", "distributions", "parts", "schedules", "initialise", "settings",
     "distributed", "files", "machine", "huggingface", "recurrence"},
    {"corpora"},
    {"encoders", "posteriors", "priors", "decoders"},
    {"model"},
    {"objectives"},
    {"build", "checkpoint"},
    {"evaluation"},
    {"latent"},
    {"training", "testing"},
    {"tasks", "report"},
    {"guided"},
    {"web"},
    {"reproduce"},
    {"cli"},
]  # fmt: skip
FAMILIES = {"encoders", "posteriors", "priors", "decoders"}
BARRED = {"web": {"training", "testing", "report", "objectives", "build", "checkpoint"}}  # it uses a model as it is
EXEMPT = {"__init__", "__main__"}


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("zentence."):
            names.add(node.module.split(".")[1])
        elif isinstance(node, ast.ImportFrom) and node.module == "zentence":
            names |= {alias.name for alias in node.names if alias.name != "__version__"}
        elif isinstance(node, ast.Import):
            names |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("zentence.")}
    return names


def floor_of(room: str) -> int:
    found = [number for number, floor in enumerate(FLOORS) if room in floor]
    assert found, f"{room} has no floor: give it one in FLOORS"
    return found[0]


def test_imports_point_one_way() -> None:
    wrong = []
    for path in sorted(SOURCE.rglob("*.py")):
        room = room_of(path)
        if room in EXEMPT:
            continue
        wrong += [
            f"{path.relative_to(SOURCE)} imports {other}"
            for other in imports_of(path)
            if floor_of(other) > floor_of(room)
            or (room in FAMILIES and other in FAMILIES - {room})
            or other in BARRED.get(room, ())
        ]
    assert not wrong


def test_files_and_functions_stay_small() -> None:
    large = []
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if text.count("\n") > 400:
            large.append(f"{path.relative_to(SOURCE)}: {text.count(chr(10))} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                length = (node.end_lineno or 0) - node.lineno + 1
                if length > 60 and "cli" not in path.parts:  # commands begin with a long list of options
                    large.append(f"{path.relative_to(SOURCE)}: {node.name} {length} lines")
    assert not large


def test_no_room_without_a_purpose_and_no_pickle() -> None:
    for path in SOURCE.rglob("*.py"):
        assert path.name not in ("utils.py", "helpers.py", "misc.py")
        text = path.read_text(encoding="utf-8")
        assert "import pickle" not in text and "torch.load(" not in text and "torch.save(" not in text
