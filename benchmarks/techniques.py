"""`make techniques`: every technique for a minute on text of known entropy; fills the table of docs/techniques.md.

Every row is a recipe with `--set` changes, so that `zentence train` does the same. Runs go two at a time, one thread
each: models of this size use two cores better that way. Finished rows are kept: an interrupted table goes on.
"""

import argparse
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.children import train_row, write_between
from zentence.cli.demo import SMALLER, SMALLER_ENCODER

PAGE = Path(__file__).parents[1] / "docs" / "techniques.md"
BEGIN, END = "<!-- table: written by make techniques -->", "<!-- end of the table -->"
SENTENCES, STEPS = 20_000, 1000
RULE = "stages.0.objective.rate_rule"
# a multiplier above 1 would pay for rate, which in a short run only pushes all codes away from the prior: hence the cap
CAPPED = 'target=5.0,optimizer="sgd",learning_rate=2e-3,largest_slack=5.0,initial=1.0,cap=1.0'
MINIMUM = f'{RULE}={{name="minimum_rate",{CAPPED}}}'
# free bits hold a rate from above only: it stays at a target whose last nat is worth one of distortion, which takes an
# encoder that is quick to say something. So does A-MIM: it narrows the posterior from the first update on, whatever the
# code says, and nothing but the least log variance (the paper's) ends the narrowing
BOTH_WAYS, NARROWEST = ('encoder.direction="both"', 'encoder.pooling="max"'), "posterior.min_log_variance=-10"


class Technique(NamedTuple):
    """A row: a recipe and its changes, where it comes from, and the rate it aims at."""

    name: str
    source: str
    recipe: str
    changes: tuple[str, ...] = ()
    target: float | None = None


def objective(text: str) -> str:
    """Return the change that sets the objective."""
    return f"stages.0.objective={{{text}}}"


TECHNIQUES = (
    Technique("language model", "all papers", "language-model"),
    Technique("plain VAE", "papers 1-5", "vae"),
    Technique("KL annealing", "papers 1-4", "vae", (f'{RULE}={{name="plain",weight={{name="linear",share=0.5}}}}',)),
    Technique(
        "cyclical annealing", "papers 4, 5", "vae", (f'{RULE}={{name="plain",weight={{name="cyclical",cycles=4}}}}',)
    ),
    Technique("β = 0.66", "paper 2, Eq. 19", "vae", (f'{RULE}={{name="plain",weight=0.66}}',)),
    Technique("word dropout 0.4", "paper 2", "vae", ("stages.0.corruption.word_dropout=0.4",)),
    Technique(
        "word dropout 1 → 0",
        "paper 2 (AWD)",
        "vae",
        ('stages.0.corruption.word_dropout={name="linear",start=1.0,end=0.0,share=0.7}',),
    ),
    Technique(
        "free bits, total",
        "paper 2, Eq. 20",
        "vae",
        (f'{RULE}={{name="free_bits",on="total",total_target=2.0}}', *BOTH_WAYS),
        2.0,
    ),
    Technique(
        "free bits, per dimension",
        "paper 4",
        "vae",
        (f'{RULE}={{name="free_bits",on="per_dimension",total_target=1.0}}', *BOTH_WAYS),
        1.0,
    ),
    Technique(
        "soft free bits", "paper 2, Eq. 26", "vae", (f'{RULE}={{name="soft_free_bits",target=5.0,step=0.01}}',), 5.0
    ),
    Technique("minimum desired rate", "paper 2, Eq. 21", "vae", (MINIMUM,), 5.0),
    Technique("InfoVAE", "paper 2", "vae", (objective('name="info_vae",rate_rule={name="plain",weight=0.7}'),)),
    Technique("IWAE, 5 codes", "paper 4", "vae", (objective('name="iwae",num_codes=5'),)),
    Technique("5 codes a step", "paper 3, Eq. 3", "vae", (objective('name="elbo",num_codes=5'),)),
    Technique("averaged states of 5 codes", "paper 3", "vae", ("averaged_codes=5",)),
    Technique("aggressive encoder", "paper 4", "vae", ('stages.0.update={name="aggressive",max_inner=10}',)),
    Technique("auto-encoder", "papers 1, 4", "autoencoder"),
    Technique("A-MIM", "paper 1, Alg. 1", "vae", (objective('name="mim"'), *BOTH_WAYS, NARROWEST)),
    Technique("minimum rate + IAF", "paper 2, Eq. 16-17", "vae", (MINIMUM, 'posterior.name="iaf"'), 5.0),
    Technique("minimum rate + planar flow", "paper 2, Eq. 18", "vae", (MINIMUM, 'posterior.name="planar"'), 5.0),
    Technique("minimum rate + mixture prior", "paper 2", "vae", (MINIMUM, 'prior.name="mixture"'), 5.0),
    Technique("minimum rate + VampPrior", "paper 2", "vae", (MINIMUM, 'prior.name="vamp"', "prior.components=50"), 5.0),
    Technique("auto-encoder first, then free bits", "paper 4 (the fix)", "pretrained", (), 4.0),
    Technique("default", "ours: docs/default.md", "default", (), 5.0),
)


def changes_of(technique: Technique) -> list[str]:
    """Return all changes of a row, those of the small shape first."""
    small = [*SMALLER, *([] if technique.recipe == "language-model" else SMALLER_ENCODER)]
    small = [change for change in small if not change.startswith("training.max_steps")]
    return [*small, f"training.max_steps={STEPS}", "training.threads=1", "evaluation.samples=50", *technique.changes]


def run(technique: Technique, corpus: Path, out: Path) -> dict[str, Any]:
    """Train and measure one row in a child process; a finished one is read."""
    folder = out / "".join(letter if letter.isalnum() else "-" for letter in technique.name)
    arguments = [str(corpus / "train.txt"), "--valid", str(corpus / "valid.txt"), "--recipe", technique.recipe]
    return train_row(technique.name, arguments, changes_of(technique), folder, {"OMP_NUM_THREADS": "1"})


def row(technique: Technique, content: dict[str, Any]) -> str:
    """Return a line of the table."""
    found = content["figures"]
    likelihood = found.get("nll") or found["iw_nll"]
    kind = likelihood["kind"].replace("_", " ")

    def number(name: str, digits: int = 2) -> str:
        return f"{found[name]['value']:.{digits}f}" if name in found else ""

    active = found.get("active_units")
    cells = [
        technique.name,
        technique.source,
        f"{likelihood['value']:.2f}",
        kind,
        number("distortion"),
        "" if technique.target is None else f"{technique.target:g}",
        number("rate"),
        number("mutual_information"),
        "" if active is None else f"{active['value']:.0f} of {active['details']['of']}",
        number("shuffled_code_gap"),
        f"{content['seconds']:.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Train all rows that are not done, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/techniques"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", action="append", help="name of a row, may be repeated; the page is not written then")
    chosen = parser.parse_args()
    corpus = chosen.out / "captions"
    if not corpus.exists():
        command = [sys.executable, "-m", "zentence", "corpus", "make", "captions", "--out", str(corpus)]
        subprocess.run([*command, "--sentences", str(SENTENCES)], check=True, stdout=sys.stderr)
    rows = [t for t in TECHNIQUES if chosen.only is None or t.name in chosen.only]
    started = time.monotonic()
    with ThreadPoolExecutor(chosen.jobs) as pool:
        contents = list(pool.map(lambda technique: run(technique, corpus, chosen.out), rows))
    source = contents[0]["figures"]["source_nll"]["value"]
    heads = "technique | from | nats/sentence | kind | distortion | target | rate | information | active | shuffled | s"
    lines = [f"| {heads} |", "|" + " --- |" * 11, f"| *the source itself* | | {source:.2f} | exact |" + " |" * 7]
    lines += [row(technique, content) for technique, content in zip(rows, contents, strict=True)]
    table = "\n".join(lines)
    if chosen.only is None:
        write_between(PAGE, (BEGIN, END), table)
    print(table)
    print(f"{time.monotonic() - started:.0f} s in all", file=sys.stderr)


if __name__ == "__main__":
    main()
