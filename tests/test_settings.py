import pytest
import tomli_w

from zentence.build import build_model, complete
from zentence.errors import ZentenceError
from zentence.parts import plain
from zentence.settings import load_settings, override, recipe_names, settings_from
from zentence.training.stages import plan_stages

FROM_ELSEWHERE = {"optimus-finetune", "optimus-small-pretrained"}  # they start from directories made before


@pytest.mark.parametrize("recipe", sorted(set(recipe_names()) - FROM_ELSEWHERE))
def test_every_recipe_loads_builds_and_is_complete(recipe: str) -> None:
    if load_settings(recipe).decoder.name == "transformer":
        pytest.importorskip("transformers", reason="transformers is not installed (extra 'transformers')")
    settings = complete(load_settings(recipe))
    model = build_model(settings, 50)
    assert model.has_code == settings.has_code
    again = settings_from(plain(settings))
    assert complete(again) == settings
    assert tomli_w.dumps(plain(settings))


def test_overrides_reach_any_depth() -> None:
    changed = load_settings("default", ["stages.0.epochs=3", "encoder.cell=gru", "optimizer.plateau.factor=0.25"])
    assert changed.stages[0].epochs == 3.0
    assert changed.encoder.options["cell"] == "gru"
    assert changed.optimizer.plateau is not None and changed.optimizer.plateau.factor == 0.25
    assert override({}, ["stages.0.epochs=3"]) == {"stages": [{"epochs": 3}]}
    assert override({}, ["corpus.lower_case=yes"]) == {"corpus": {"lower_case": "yes"}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("encoder.hiden_size=3", "Unknown setting 'encoder.hiden_size'. Did you mean 'hidden_size'?"),
        ("encoder.name=recurent", "Unknown encoder 'recurent'. Did you mean 'recurrent'?"),
        ("stages.0.objective.name=elb0", "Unknown objective 'elb0'. Did you mean 'elbo'?"),
        ("stages.0.objective.rate_rule.name=freebits", "Unknown rate rule 'freebits'. Did you mean 'free_bits'?"),
        ("trainin.seed=3", "Unknown setting 'trainin'. Did you mean 'training'?"),
        ("training.sed=3", "Unknown setting 'training.sed'. Did you mean 'seed'?"),
        ("training.seed=-1", "training.seed"),
        ("decoder.input_dropout=1.5", "decoder.input_dropout"),
        ("stages.7.epochs=3", "is not the number of one of"),
        ("stages.0.epochs", "write it as name.name=value"),
        ("stages.0.reset=[\"decodr\"]", "no part 'decodr'"),
        ("optimizer.l2.decodr=0.1", "unknown part 'decodr'"),
        ("optimizer.schedule.name=cosin", "Unknown schedule 'cosin'. Did you mean 'cosine'?"),
        ("encoder.name=none", "needs a code; a language model takes 'likelihood'"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line_and_name_the_setting(change: str, message: str) -> None:
    with pytest.raises(ZentenceError) as caught:
        complete(load_settings("default", [change]))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_recipe() -> None:
    with pytest.raises(ZentenceError, match=r"Unknown recipe 'defalt'\. Did you mean 'default'"):
        load_settings("defalt")


def test_a_part_from_elsewhere_needs_no_fork() -> None:
    outside = load_settings("default", ["encoder.name=zentence.encoders.recurrent:RecurrentEncoder"])
    assert complete(outside).encoder.options["cell"] == "lstm"
    with pytest.raises(ZentenceError, match="Cannot load encoder 'nowhere:Encoder'"):
        complete(load_settings("default", ["encoder.name=nowhere:Encoder"]))


def test_max_steps_shrinks_stages_in_proportion() -> None:
    content = {"stages": [{"epochs": 2}, {"epochs": 8}], "training": {"max_steps": 100}}
    plans = plan_stages(settings_from(content), 100, 5000)
    assert [plan.steps for plan in plans] == [20, 80]
    assert plans[0].epoch_steps == pytest.approx(10.0)
    unlimited = plan_stages(settings_from({"stages": content["stages"]}), 100, 5000)
    assert [plan.steps for plan in unlimited] == [200, 800] and unlimited[0].epoch_steps == 100.0
    longer = plan_stages(settings_from({**content, "training": {"max_steps": 5000}}), 100, 5000)
    assert [plan.steps for plan in longer] == [200, 800]


def test_large_corpora_get_fewer_epochs() -> None:
    stages = [{"epochs": 30, "max_tokens": 10_000}]
    assert plan_stages(settings_from({"stages": stages}), 100, 5000)[0].steps == 200
    assert plan_stages(settings_from({"stages": stages}), 100, 100)[0].steps == 3000


def test_no_value_can_be_set_and_survives_a_round_trip() -> None:
    batches = ["training.batch_tokens=none", "training.batch_sentences=8"]
    changed = load_settings("default", [*batches, "optimizer.clip=none", "decoder.initial.embedding=none"])
    assert changed.optimizer.clip is None and changed.training.batch_tokens is None
    again = complete(settings_from(plain(complete(changed))))
    assert again == complete(changed) and again.optimizer.clip is None
    assert build_model(again, 9).decoder.options.initial.embedding is None
    with pytest.raises(ZentenceError, match=r"training\.seed"):
        load_settings("default", ["training.seed=none"])
