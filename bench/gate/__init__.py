"""The regression gate: compares predictions of rules with a baseline, and times with an older version.

Each rule is judged case by case (cells and probes, see `cases`); its most severe case decides. The tables of
decisions are in ``docs/ci.md``.

The drift of a prediction (`predictions.drift`) alone decides on accuracy, since every prediction is
deterministic: a sampling rule has a seed for each case. A larger drift is another distribution, and whether
the change is intended is not a statistical question. A bug may even bring a biased rule nearer to the truth.
Probes have no oracle and therefore no error, but all other changes are detected there too.
"""
