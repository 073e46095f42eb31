"""Plans joined with measurements, compared with plain joins of pandas."""

import itertools

import numpy as np
import pandas as pd
import pytest

from sdp_bench.bench.results.columns import CELL, PLAN, keys, measurements, outcome, typed
from sdp_bench.bench.results.folder import LeftOut, read, read_plan
from sdp_bench.bench.results.joined import failures, find, joined_measurements, nets, rules, unsupported
from tests.bench.results.made_up import SUBJECT, begun, finished, groups, measured, plan

EXPERIMENTS = {
    "tv": (("tv:cells=4", "tv:cells=16"), ("sdp", "monte_carlo:samples=5", "baseline")),
    "w1": (("tv:cells=16", "w1"), ("sdp",)),
    "tasks": (("accuracy", "w1"), ("sdp", "baseline")),
}
OF_UNIT = ["net", "input", "noise", "sigma", "dataset", "objective", "seed", "recipe"]
"""What is measured, as opposed to how."""


def random_units(random):
    laws = [
        {
            **SUBJECT,
            "net": f"n{random.integers(6)}",
            "depth": int(random.integers(1, 4)),
            "seed": int(random.integers(3)),
            "input": number % 5,
            "sigma": sigma,
            "samples": int(random.choice([1024, 2048])),
        }
        for sigma in (0.1, 1.0, 10.0)
        for number in range(10)
    ]
    empty = dict.fromkeys(("network", "activation", "net", "net_source", "noise", "sampler"))
    tasks = [
        {**SUBJECT, **empty, "dataset": "iris", "seed": number % 3, "recipe": ("a", "b")[number % 2]}
        | dict.fromkeys(("depth", "sigma", "samples", "input", "accuracy"))
        for number in range(8)
    ]
    units = pd.DataFrame([*laws, *tasks])
    return units.assign(unit=[f"{key:06x}" for key in random.permutation(2**20)[: len(units)]])


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Two runs of random units of every kind; a part of the plans is not measured."""
    random, folder = np.random.default_rng(1), tmp_path_factory.mktemp("joined")
    units = random_units(random)
    for day, chance in ((1, 0.8), (2, 0.4)):
        parts = []
        for name, (metrics, names) in EXPERIMENTS.items():
            cells = [(rule, rule.upper(), metric) for rule, metric in itertools.product(names, metrics)]
            cells = pd.DataFrame(cells, columns=["rule", "rule_label", "metric_spec"])
            chosen = units[random.random(len(units)) < chance]
            parts.append(chosen.merge(cells, how="cross").assign(experiment=name, group="g"))
        rows = typed(pd.concat(parts, ignore_index=True), PLAN)
        outcomes = []
        for unit, rule, metric in rows[CELL].drop_duplicates().itertuples(index=False):
            if random.random() < 0.1:
                outcomes.append(outcome(unit, rule, metric, "failed", "boom"))
                continue
            components = (None,) if metric == "w1" else ("", "10", "2")[: random.integers(1, 4)]
            for component in components:
                value = float(random.random())
                outcomes.append(outcome(unit, rule, metric, component=component, value=value, stderr=0.01))
        shuffled = measurements(rows, outcomes).sample(frac=1, random_state=day)
        begun(folder, rows, day).write("g", shuffled)
    return read(folder)


def plain(frame):
    """Return a frame without categories, in which missing values equal each other."""
    return frame.astype(object).where(frame.notna(), "")


@pytest.fixture(scope="module")
def expected(stored):
    """Plans and measurements joined by pandas, with the age of the run that requests a row."""
    rows = plain(stored.measurements.loc[stored.measurements["status"] == "measured"])
    parts = []
    for age, run in enumerate(stored.runs.values()):
        requested = plain(read_plan(run, ["experiment", *CELL]))
        parts.append(requested.merge(rows, on=CELL).assign(age=age))
    return parts


COMMON = ["experiment", *CELL, "component", "value", "stderr", "net", "sigma", "depth", "input", "samples"]
COMMON += ["dataset", "seed", "recipe", "run", "rule_label", "fingerprint", "accuracy"]


def sorted_rows(frame):
    return sorted(map(tuple, plain(frame)[COMMON].to_numpy().tolist()), key=repr)


@pytest.mark.parametrize("number", [0, 1])
def test_a_frame_of_a_run_is_its_plan_joined_with_the_measurements(stored, expected, number):
    run = [*stored.runs.values()][number]
    frame = joined_measurements(stored, [run])
    assert len(frame) > 100
    assert sorted_rows(frame) == sorted_rows(expected[number])


def test_of_several_runs_the_newest_that_asks_for_a_subject_counts(stored, expected):
    rows = pd.concat(expected)
    rows["metric"] = rows["metric_spec"].str.partition(":")[0]
    names = ["experiment", *OF_UNIT, "rule", "metric", "component"]
    rows = rows.sort_values("age").drop_duplicates(["experiment", *CELL, "component"], keep="last")
    newest = rows[rows["age"] == rows.groupby(names)["age"].transform("max")]
    assert max(map(len, expected)) < len(newest) < len(rows)
    assert sorted_rows(joined_measurements(stored, [*stored.runs.values()])) == sorted_rows(newest)


def test_rows_are_in_the_order_of_what_is_measured(stored):
    frame = joined_measurements(stored, [*stored.runs.values()])
    order = frame[["experiment", "depth", "seed", "sigma", "input", "rule", "metric_spec", "component"]]
    order = order.astype(object).where(order.notna(), -np.inf)
    spec = order["metric_spec"]
    assert sorted(spec.unique()) == ["accuracy", "tv:cells=16", "tv:cells=4", "w1"]
    in_plans = order["experiment"].map({name: number for number, name in enumerate(EXPERIMENTS)})
    table = order.assign(experiment=in_plans).to_numpy().tolist()
    assert table == sorted(table)


def test_a_frame_has_no_missing_components_and_no_unused_categories(stored):
    frame = joined_measurements(stored, [stored.run()])
    assert frame["component"].notna().all()
    assert frame["metric"].tolist() == [spec.partition(":")[0] for spec in frame["metric_spec"]]
    for name in frame.select_dtypes("category"):
        assert set(frame[name].cat.categories) == set(frame[name].dropna())
    assert not [name for name in frame if frame[name].dtype == object]


def test_no_runs_have_no_rows(stored):
    assert joined_measurements(stored, []).empty
    assert failures(stored, []).empty
    assert unsupported(stored, []) == []
    assert nets(stored, []).empty


def test_measurements_are_found_by_the_beginning_of_their_key(stored):
    frame = joined_measurements(stored, [*stored.runs.values()])
    key = keys(frame).iloc[7]
    unit = key.partition("/")[0]
    assert set(keys(find(stored, key))) == {key}
    assert set(find(stored, unit[:4])["unit"]) == {unit}
    assert len(find(stored, "")) == (stored.measurements["status"] == "measured").sum()
    assert find(stored, "no such unit").empty


def test_nets_are_those_of_the_runs(stored):
    for runs in ([stored.run()], [*stored.runs.values()]):
        digests = {net for run in runs for net in read_plan(run)["net"].dropna()}
        assert sorted(nets(stored, runs)["digest"]) == sorted(digests)


# Rules, failures and what is not supported --------------------------------------------------------


def test_rules_have_the_traits_of_the_newest_run_also_if_it_measured_nothing(tmp_path):
    rows = plan(units=1, rules=("dvia", "sdp"), metrics=("w1",))
    finished(tmp_path, rows.assign(rule_label="old", rank=1), 1)
    assert [traits.label for traits in rules(read(tmp_path)).values()] == ["old", "old"]
    newer = rows[rows["rule"] == "sdp"].assign(rule_label="new", rank=0, sampling=5, colour="#000000")
    begun(tmp_path, typed(newer, PLAN), 2)
    traits = rules(read(tmp_path))
    assert [*traits] == ["sdp", "dvia"]
    assert (traits["sdp"].label, traits["sdp"].sampling, traits["sdp"].colour) == ("new", 5, "#000000")
    assert (traits["dvia"].label, traits["dvia"].sampling, traits["dvia"].colour) == ("old", None, None)


def test_numbers_of_samples_are_integers_also_next_to_rules_without_samples(tmp_path):
    rows = plan(units=1, rules=("dvia", "monte_carlo:samples=100"), metrics=("w1",))
    sizes = rows["rule"].map({"monte_carlo:samples=100": 100}).astype("Int64")
    finished(tmp_path, rows.assign(sampling=sizes), 1)
    traits = rules(read(tmp_path))
    assert repr([traits[rule].sampling for rule in ("dvia", "monte_carlo:samples=100")]) == "[None, 100]"


def test_rules_of_a_run_without_a_description_are_known_from_their_measurements(tmp_path):
    run = finished(tmp_path, plan(units=1))
    (tmp_path / "runs" / run.id / "run.json").unlink()
    assert [*rules(read(tmp_path))] == ["dvia", "sdp"]


def failing(folder, rows, day, *outcomes):
    writer = begun(folder, rows, day)
    writer.write("group", measurements(rows, [*outcomes]))
    return writer


ROWS = plan(units=1, rules=("dvia", "sdp"), metrics=("tv_class", "w1"))
CELLS = [tuple(cell) for cell in ROWS[CELL].to_numpy()]
NAME = "4-8-3 seed 0, input 0, sigma 0.1"


def test_a_failed_metric_is_named(tmp_path):
    fine = [outcome(*cell, value=0.5) for cell in CELLS[1:]]
    failing(tmp_path, ROWS, 1, outcome(*CELLS[0], "failed", "boom", seconds=2.0), *fine)
    stored = read(tmp_path)
    frame = failures(stored, [stored.run()])
    assert frame.to_numpy().tolist() == [[NAME, "dvia", "tv_class", "boom", 2.0, "failed"]]


def test_a_rule_that_failed_for_all_metrics_has_one_line(tmp_path):
    outcomes = [outcome(*cell, "failed", "boom", seconds=1.0) for cell in CELLS[:2]]
    outcomes += [outcome(*cell, value=0.5) for cell in CELLS[2:]]
    failing(tmp_path / "rule", ROWS, 1, *outcomes)
    stored = read(tmp_path / "rule")
    (line,) = failures(stored, [stored.run()]).to_numpy().tolist()
    assert (line[:2], line[3:]) == ([NAME, "dvia"], ["boom", 1.0, "failed"])
    assert pd.isna(line[2])
    outcomes = [outcome(*cell, "failed", "died", seconds=1.0) for cell in CELLS]
    failing(tmp_path / "all", ROWS, 1, *outcomes)
    stored = read(tmp_path / "all")
    lines = failures(stored, [stored.run()])
    assert lines["rule"].tolist() == ["dvia", "sdp"]
    assert set(lines["error"]) == {"died"}
    assert lines["metric"].isna().all()


def test_failures_end_with_a_measurement_and_are_those_of_the_runs(tmp_path):
    outcomes = [outcome(*cell, "failed", "boom") for cell in CELLS]
    failing(tmp_path, ROWS, 1, *outcomes)
    other = ROWS.assign(unit="other", input=9)
    finished(tmp_path, other, 2)
    stored = read(tmp_path)
    first, second = stored.runs.values()
    assert failures(stored, [first])["rule"].tolist() == ["dvia", "sdp"]
    assert failures(stored, [second]).empty
    finished(tmp_path, ROWS[ROWS["rule"] == "dvia"], 3)
    stored = read(tmp_path)
    assert set(failures(stored, [first])["rule"]) == {"sdp"}
    finished(tmp_path, ROWS, 4)
    stored = read(tmp_path)
    assert failures(stored, [*stored.runs.values()]).empty


def test_undefined_metrics_are_listed_with_their_reason_and_without_one_are_not(tmp_path):
    outcomes = [outcome(*CELLS[0], "undefined", "no density")]
    outcomes += [outcome(*cell, value=0.5) for cell in CELLS[2:]]
    failing(tmp_path, ROWS, 1, *outcomes)
    stored = read(tmp_path)
    frame = failures(stored, [stored.run()])
    assert frame[["rule", "metric", "error", "status"]].to_numpy().tolist() == [
        ["dvia", "tv_class", "no density", "undefined"]
    ]


def test_a_unit_of_a_task_is_named_by_its_data(tmp_path):
    empty = dict.fromkeys(("net", "network", "activation", "noise"))
    rows = ROWS.assign(**empty, dataset="yacht", objective=None)
    failing(tmp_path / "plain", typed(rows, PLAN), 1, outcome(*CELLS[0], "failed", "boom"))
    failing(
        tmp_path / "long", typed(rows.assign(objective="nll"), PLAN), 1, outcome(*CELLS[0], "failed", "boom")
    )
    for name, title in (("plain", "yacht seed 0"), ("long", "yacht nll seed 0")):
        stored = read(tmp_path / name)
        assert failures(stored, [stored.run()])["group"].tolist() == [title]


def test_other_noise_is_in_the_name_of_a_unit(tmp_path):
    failing(tmp_path, ROWS.assign(noise="laplace"), 1, outcome(*CELLS[0], "failed", "boom"))
    stored = read(tmp_path)
    assert set(failures(stored, [stored.run()])["group"]) == {"4-8-3 seed 0, input 0, laplace, sigma 0.1"}


def test_rules_that_do_not_support_a_net_are_listed_once(tmp_path):
    rows = plan(units=3)
    writer = begun(tmp_path, rows)
    for name, part in groups(rows).items():
        reason = {"status": "unsupported", "reason": "no formula for softmax"}
        frame = pd.concat(
            [measured(part[part["rule"] == "sdp"]), measured(part[part["rule"] == "dvia"], **reason)]
        )
        writer.write(name, frame)
    stored = read(tmp_path)
    assert unsupported(stored, [stored.run()]) == [LeftOut("dvia", "relu", "no formula for softmax")]
    assert failures(stored, [stored.run()]).empty
    assert set(joined_measurements(stored, [stored.run()])["rule"]) == {"sdp"}
