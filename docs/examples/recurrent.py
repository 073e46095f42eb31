"""Errors of moment matching in LSTM and GRU cells, compared with samples; see docs/rules.md.

``python docs/examples/recurrent.py`` takes some ten seconds.
"""

import torch
from torch import nn

import sdp_ref as sr
from sdp_ref.activations import activation_of

SAMPLES, INPUTS, HIDDEN = 200_000, 8, 6
SIGMAS = (0.3, 1.0, 3.0)
RULES = ("marginal_moment_matching", "moment_matching")


class Place(nn.Module):
    """A cell up to one of its values; inputs and states stand side by side.

    Parameters
    ----------
    cell : nn.LSTMCell or nn.GRUCell
    place : str
        Name of the value.
    """

    def __init__(self, cell, place):
        super().__init__()
        self.cell, self.place = cell, place

    def forward(self, x):
        """Compute it."""
        return self.values(x)[self.place]

    def values(self, x):
        """All values by their names, which say what they are made of."""
        weights = self.cell
        own = x[:, :INPUTS] @ weights.weight_ih.mT + weights.bias_ih
        state = x[:, INPUTS : INPUTS + HIDDEN]
        back = state @ weights.weight_hh.mT + weights.bias_hh
        if isinstance(self.cell, nn.LSTMCell):
            i, f, g, o = (own + back).chunk(4, 1)
            i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
            known = {"i": i, "g": g, "f": f, "o": o, "state": x[:, INPUTS + HIDDEN :]}
            known |= {"i * g": i * g, "f * state": f * known["state"]}
            known["c"] = known["i * g"] + known["f * state"]
            known["tanh c"] = known["c"].tanh()
            return known | {"o * tanh c": o * known["tanh c"]}
        (r, z, n), (of_r, of_z, b) = own.chunk(3, 1), back.chunk(3, 1)
        r, z = (r + of_r).sigmoid(), (z + of_z).sigmoid()
        known = {"r": r, "(1 - z)": 1 - z, "z": z, "b": b, "state": state, "r * b": r * b}
        known["a"] = n + known["r * b"]
        known["tanh a"] = known["a"].tanh()
        known |= {"(1 - z) * tanh a": known["(1 - z)"] * known["tanh a"], "z * state": z * state}
        return known | {"h": known["(1 - z) * tanh a"] + known["z * state"]}


def of_true_moments(place, known):
    """Mean and variance of what an op makes of Gaussian values with the samples' moments; none of a sum."""
    if place.startswith("tanh "):
        x = known[place.removeprefix("tanh ")]
        return activation_of(nn.Tanh()).mean_variance(x.mean(0), x.var(0))
    if " * " not in place:
        return None
    left, right = place.split(" * ")
    a, b = known[left], known[right]
    m, n, v, w = a.mean(0), b.mean(0), a.var(0), b.var(0)
    both = ((a - m) * (b - n)).mean(0)
    return m * n + both, m**2 * w + n**2 * v + 2 * m * n * both + v * w + both**2


def percent(moments, samples):
    """Largest error of a mean, in standard deviations, and of a variance, in the largest one."""
    if moments is None:
        return ""
    variance = samples.var(0)
    of_mean = ((moments[0] - samples.mean(0)).abs() / variance.sqrt()).max()
    of_variance = (moments[1] - variance).abs().max() / variance.max()
    return f"{100 * of_mean:.0f} / {100 * of_variance:.0f}"


def figures(kind):
    """Of each value of a cell its errors by each rule, and of its op alone, for each noise."""
    torch.manual_seed(0)
    cell, wide = kind(INPUTS, HIDDEN).double(), INPUTS + (2 if kind is nn.LSTMCell else 1) * HIDDEN
    for parameter in cell.parameters():
        parameter.mul_(2)
    mean, noise = 0.5 * torch.randn(1, wide).double(), torch.randn(SAMPLES, wide).double()
    found = {}
    for sigma in SIGMAS:
        known = Place(cell, "").values(mean + sigma * noise)
        law = sr.DiagonalGaussian(mean, torch.full_like(mean, sigma**2))
        for place in list(known)[5:]:
            laws = [sr.propagate(Place(cell, place), law, rule) for rule in RULES]
            moments = [(each.mean[0], each.variance[0]) for each in laws]
            found[place, sigma] = [
                percent(m, known[place]) for m in (*moments, of_true_moments(place, known))
            ]
    return found


def main():
    """Print the table."""
    columns = [f"{name}, σ = {sigma:g}" for name in (*RULES, "op alone") for sigma in SIGMAS]
    print(f"| cell | value | {' | '.join(columns)} |\n{'| --- ' * (len(columns) + 2)}|")
    for kind in (nn.LSTMCell, nn.GRUCell):
        found = figures(kind)
        for place in dict.fromkeys(place for place, _ in found):
            cells = [found[place, sigma][which] for which in range(len(RULES) + 1) for sigma in SIGMAS]
            print(f"| {kind.__name__.removesuffix('Cell')} | {place} | {' | '.join(cells)} |")


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    main()
