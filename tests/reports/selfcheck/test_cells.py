from sdp_bench.reports.selfcheck.simulations import cells


def test_every_cell_law_and_number_of_samples_has_a_rate() -> None:
    rates = list(cells.rates(trials=2))
    assert {rate.part for rate in rates} == {"floors"}
    conditions = [rate.condition for rate in rates]
    assert len(set(conditions)) == len(conditions)
    for law in cells.cell_laws():
        assert sum(condition.startswith(law) for condition in conditions) == len(cells.SAMPLES)
    assert sum("Sobol" in condition for condition in conditions) == 3
    assert all(rate.promised[0] == 0.94 for rate in rates)


def test_another_seed_draws_other_samples() -> None:
    law = cells.cell_laws()["(0.999, rest) over 10 cells"]
    hits = [cells.coverage(law, 1000, 100, seed) for seed in range(5)]
    assert len(set(hits)) > 1
    assert hits[0] == cells.coverage(law, 1000, 100, 0)
