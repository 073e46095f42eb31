"""The regression gate: compares rules with a baseline of their predictions and times.

Each rule is judged case by case (cells and probes, see `cases`); its most severe case decides. The tables of
decisions are in ``docs/ci.md``; `accuracy` and `sampling.status` implement them.

The prediction of a rule without seeds is deterministic, so drift (`predictions.drift`) alone decides: a
larger drift is another distribution, and whether the change is intended is not a statistical question. A bug
may even bring a biased rule nearer to the truth. A sampling rule that does not reproduce the baseline under
the baseline's seeds is compared statistically (`sampling`), with fresh seeds, the baseline's draws and fresh
oracles. Probes have no oracle and therefore no error, but all other changes are detected there too.
"""
