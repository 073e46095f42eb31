"""The regression gate: compares rules with a baseline of their predictions and times.

Accuracy. Each rule is judged case by case (cells and probes, see `cells`); its most severe case decides.

======================================================  ============================  ==========
rule without seeds                                      status                        verdict
======================================================  ============================  ==========
all numbers equal                                       unchanged                     passed
drift of the moments up to 1e-3                         rounding                      passed
larger drift                                            changed                       changed
======================================================  ============================  ==========

======================================================  ============================  ==========
sampling rule                                           status                        verdict
======================================================  ============================  ==========
drift under the baseline's seeds up to 1e-3             unchanged or rounding         passed
larger; no significant change under fresh seeds         other draws                   passed
larger; error significantly and relevantly larger       worse                         regression
larger; moments changed significantly, by over 1e-3     changed                       changed
larger; only a significantly smaller error              better                        passed
======================================================  ============================  ==========

Drift is defined in `answers`. The prediction of a rule without seeds is deterministic, so drift alone
decides: a larger drift is another distribution, and whether the change is intended is not a statistical
question. A bug may even bring a biased rule nearer to the truth. Every change therefore stops the gate,
``--update`` accepts it, and the report gives the divergences of both predictions from the moments of a fresh
oracle.

A sampling rule that does not reproduce the baseline under the baseline's seeds is compared statistically
(`sampling`), with fresh seeds, the baseline's draws and fresh oracles. "Significant" means at level 1 % after
Holm's correction over all tests of the run, with half of the level for the tests of all cases together.

Probes have no oracle and therefore no error, but all other changes are detected there too. A law where the
baseline had none is "changed". A rule that is not in the baseline is rejected unless new rules are allowed. A
rule that is only in the baseline stops the gate if all rules are checked. A rule that cannot be run or timed
fails. A verdict without any comparison does not pass.

Speed: see `speed.judge`. Recorded oracles: see `sdp_bench.bench.manifests`. Exit codes: see
`verdict.exit_code`.
"""
