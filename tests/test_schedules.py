import pytest

from zentence.errors import ZentenceError
from zentence.parts import Part
from zentence.schedules import SCHEDULES, build_schedule


def schedule(name: str, **options: object) -> list[float]:
    chosen = build_schedule("test", Part(name=name, **options), 10.0, 100)
    return [round(chosen(step), 6) for step in (0, 10, 25, 50, 99, 100, 150)]


def test_constant() -> None:
    assert build_schedule("test", 0.3, 10.0, 100)(77) == 0.3
    assert build_schedule("test", Part(name="constant", value=0.3), 10.0, 100)(77) == 0.3


def test_linear_over_epochs_and_shares() -> None:
    assert schedule("linear", epochs=5) == [0.0, 0.2, 0.5, 1.0, 1.0, 1.0, 1.0]
    assert schedule("linear", share=0.5, start=1.0, end=0.0) == [1.0, 0.8, 0.5, 0.0, 0.0, 0.0, 0.0]


def test_schedules_stretch_to_the_stage() -> None:
    short = build_schedule("test", Part(name="linear", epochs=5), 1.0, 10)
    long = build_schedule("test", Part(name="linear", epochs=5), 10.0, 100)
    assert [short(step) for step in range(10)] == [long(10 * step) for step in range(10)]


def test_logistic_is_half_way_in_the_middle() -> None:
    values = schedule("logistic", middle=0.5, steepness=20.0)
    assert values[3] == 0.5 and values[0] < 1e-4 and values[-1] > 0.9999
    assert values == sorted(values)


def test_cyclical_as_optimus_writes_it() -> None:
    chosen = build_schedule("test", Part(name="cyclical", cycles=2), 10.0, 80)
    assert [chosen(step) for step in (0, 19, 20, 25, 30, 39)] == [0.0, 0.0, 0.0, 0.5, 1.0, 1.0]
    assert [chosen(step) for step in (40, 59, 65, 70, 79, 80)] == [0.0, 0.0, 0.5, 1.0, 1.0, 1.0]


def test_cosine_and_warmup() -> None:
    assert schedule("cosine")[0] == 1.0 and schedule("cosine")[3] == 0.5 and schedule("cosine")[-1] == 0.0
    chosen = build_schedule("test", Part(name="warmup", warmup_share=0.1), 10.0, 100)
    assert chosen(0) == pytest.approx(1 / 11) and chosen(10) == 1.0 and chosen(55) == 0.5 and chosen(100) == 0.0


def test_staged() -> None:
    assert schedule("staged", values=[0.0, 0.5, 1.0], from_share=[0.0, 0.25, 0.5]) == [0, 0, 0.5, 1, 1, 1, 1]


def test_every_schedule_starts_with_its_defaults() -> None:
    for name in SCHEDULES:
        chosen = build_schedule("test", Part(name=name), 10.0, 100)
        assert all(0.0 <= chosen(step) <= 1.0 for step in range(120))


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (Part(name="liner"), "Unknown schedule 'liner'. Did you mean 'linear'?"),
        (Part(name="linear", epoch=3), "Unknown setting 'test.epoch'. Did you mean 'epochs'?"),
        (Part(name="linear", epochs=3, share=0.5), "not in two of them"),
        (Part(name="linear", updates=3, share=0.5), "not in two of them"),
        (Part(name="staged", values=[1.0], from_share=[0.0, 0.5]), "the same length"),
        (Part(name="cyclical", share_at_start=0.8, share_rising=0.5), "must not exceed 1"),
    ],
)
def test_mistakes_are_one_line(part: Part, message: str) -> None:
    with pytest.raises(ZentenceError, match=message.replace("?", r"\?")):
        build_schedule("test", part, 10.0, 100)


@pytest.mark.parametrize("total", [50, 1000])
def test_a_length_in_updates_does_not_follow_the_stage(total: int) -> None:
    schedule = build_schedule(
        "w", Part(name="cyclical", cycles=1, updates=40, share_at_start=0.25, share_rising=0.75), total / 3.0, total
    )
    assert [schedule(step) for step in (0, 10, 25, 40, 4000)] == [0.0, 0.0, 0.5, 1.0, 1.0]
