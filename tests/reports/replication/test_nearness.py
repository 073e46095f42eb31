import math

import numpy as np
import pandas as pd
import pytest

from sdp_bench.reports.paper import comparison
from sdp_bench.reports.replication.nearness import nearness
from tests.reports import made_up

JOINT = "tv_paper:bins=10,bin_range=joint,pilot_samples=131072"
FINE = "tv_headline:cells=512,pilot_samples=131072"
SD = "std_ratio"
RAW, SCALED = "sgd 0.01, raw features", "sgd 0.01, standardised features"


def paper(kind):
    """What the paper prints for four ReLU layers, by (sigma, rule, component)."""
    printed_rows = comparison()
    printed_rows = printed_rows[
        (printed_rows["metric"] == kind)
        & (printed_rows["activation"] == "relu")
        & (printed_rows["depth"] == 4)
    ]
    return {
        (r.sigma, r.method, r.component): (float(r.value), float(r.sd or "nan"))
        for r in printed_rows.itertuples()
    }


def measured(recipe, spec, shift=0.0, nets=5, scatter=0.0, rules=("sdp", "dvia")):
    """Measurements that are what the paper prints, moved by some shift: ratios by a factor of exp(shift)."""
    kind = "std_ratio" if spec == SD else "1-tv"
    rows = []
    for (sigma, rule, component), (value, _) in paper(kind).items():
        if rule not in rules:
            continue
        for net in range(nets):
            off = shift + scatter * (net - (nets - 1) / 2)
            moved = value * math.exp(off) if kind == "std_ratio" else 1 - (value + off)
            rows.append((recipe, spec, sigma, rule, component, moved, net, f"{recipe} {net}"))
    columns = "recipe metric_spec sigma rule component value seed net"
    same = {"experiment": "iris-claims", "activation": "relu", "depth": 4, "noise": "gaussian", "input": 0}
    return made_up.table(columns, rows, **same)


def test_what_is_printed_is_nearest_and_distances_are_those_put_in():
    near = pd.concat([measured(RAW, JOINT), measured(RAW, SD, math.log(2))])
    far = pd.concat([measured(SCALED, JOINT, -0.1), measured(SCALED, SD, math.log(3))])
    compared = nearness(pd.concat([far, near, measured(RAW, FINE, -0.3)]))
    order = [(one["recipe"], one["gaps"]["1-tv"].size) for one in compared["conventions"]]
    assert [recipe for recipe, _ in order] == [RAW, RAW, SCALED]
    assert [size for _, size in order] == pytest.approx([0, 0.3, 0.1], abs=1e-12)
    first, _, last = compared["conventions"]
    assert first["rank"] == 0
    assert first["gaps"]["std_ratio"].text == "× 2.00 (2.00 to 2.00)"
    assert last["gaps"]["std_ratio"].size == pytest.approx(math.log(3))
    assert last["gaps"]["1-tv"].cells == len(paper("1-tv")) * 2 // len({r for _, r, _ in paper("1-tv")})


def test_intervals_are_over_nets():
    compared = nearness(pd.concat([measured(RAW, JOINT, 0.2, 9, 0.02), measured(RAW, FINE, 0.2, 2)]))
    wide, two = sorted((one["gaps"]["1-tv"] for one in compared["conventions"]), key=lambda gap: -gap.nets)
    # the mean of nine values 0.02 apart has a standard error of 0.02 sqrt(60 / 81)
    error = 0.02 * math.sqrt(60 / 81)
    assert wide.high - wide.low == pytest.approx(2 * 1.96 * error, rel=0.15)
    assert wide.low < 0.2 < wide.high
    assert math.isnan(two.low)
    assert two.text == "0.200"


def test_only_cells_of_all_conventions_are_compared():
    fine = measured(RAW, FINE, rules=("sdp", "marginal_sdp"))
    found = nearness(pd.concat([measured(RAW, JOINT), fine]))
    sigmas = {sigma for sigma, _, _ in paper("1-tv")}
    assert {one["gaps"]["1-tv"].cells for one in found["conventions"]} == {len(sigmas)}


def test_cells_are_counted_for_kinds_that_the_nearest_convention_lacks():
    frame = pd.concat([measured(RAW, JOINT), measured(SCALED, JOINT, 0.1), measured(SCALED, SD)])
    found = nearness(frame)
    assert "std_ratio" not in found["conventions"][0]["gaps"]
    assert set(found["cells"]) == {"1-tv", "std_ratio"}
    for kind, cells in found["cells"].items():
        assert cells == sum(rule in ("sdp", "dvia") for _, rule, _ in paper(kind))


def test_a_number_outside_all_conventions_by_more_than_its_spread_is_reported():
    spreads = {(s, r): sd for (s, r, _), (_, sd) in paper("1-tv").items() if r in ("sdp", "dvia")}
    limit = float(np.median(list(spreads.values())))
    compared = nearness(pd.concat([measured(RAW, JOINT, limit), measured(RAW, FINE, 2 * limit)]))
    unreached_cells = {(one["sigma"], one["rule"]) for one in compared["unreached"]}
    assert unreached_cells == {where for where, sd in spreads.items() if sd < limit}
    assert [one["gap"] for one in compared["unreached"]] == pytest.approx([limit] * len(unreached_cells))
    around = pd.concat([measured(RAW, JOINT, limit), measured(RAW, FINE, -2 * limit)])
    assert not nearness(around)["unreached"]


def test_a_kind_that_some_recipes_lack_orders_nothing():
    """Standard deviations of one recipe alone, far off, leave it where its shared mass puts it."""
    frame = pd.concat([measured(RAW, JOINT), measured(SCALED, JOINT, 0.1), measured(RAW, SD, 3)])
    assert [one["recipe"] for one in nearness(frame)["conventions"]] == [RAW, SCALED]


def test_one_convention_is_no_choice():
    assert nearness(measured(RAW, JOINT)) is None
    assert nearness(measured(RAW, SD)) is None


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("ratio", [0.0, -1.0, math.inf])
def test_ratios_without_a_logarithm_are_infinitely_far(ratio):
    broken = measured(SCALED, SD).assign(value=ratio)
    near = [measured(RAW, JOINT), measured(SCALED, JOINT), measured(RAW, SD, 3)]
    first, last = nearness(pd.concat([*near, broken]))["conventions"]
    assert (first["recipe"], last["recipe"]) == (RAW, SCALED)
    assert first["rank"] == 0
    assert last["gaps"]["std_ratio"].text == "× ∞"
