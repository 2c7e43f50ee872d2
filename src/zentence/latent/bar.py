"""A bar on standard error, for those who call the library and ask for one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_shown(title: str, total: int, shown: bool) -> Iterator[Callable[[int], None] | None]:
    """Yield what moves the bar to a number of things done; none, and no bar, unless it is to be shown."""
    if not shown:
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.update(task, completed=done)
