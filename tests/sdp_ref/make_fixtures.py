"""Make the reference moments in tests/sdp_ref/fixtures, independently of sdp_ref.

    python -m tests.sdp_ref.make_fixtures        (ten minutes)

One-dimensional moments: 50-digit composite Gauss-Legendre quadrature of the definition (mpmath).
Covariances: of ReLU, GELU and probit the same, after taking the mean of one variable given the other in
closed form; of sigmoid, SiLU and tanh a two-dimensional composite quadrature in double precision. Every value
is relative to the input's scale: mean / s, variance and covariance / (s_i s_j).
"""

import functools
import itertools
import json
from pathlib import Path

import mpmath as mp
import numpy as np

FIXTURES = Path(__file__).parent / "fixtures"
DIGITS = 50
POINTS = 40  # a panel
STDS = (1e-3, 1.0, 1e3)
HS = (-1e4, -40.0, -37.0, -20.0, -8.0, -4.0, -2.0, -0.5, 0.0, 0.5, 2.0, 8.0, 40.0, 1e4)
RHOS = (0.0, 1e-8, 0.5, 0.9, 0.99, 0.999, 1 - 1e-6, 1.0)
SLOPE = 0.2
CELU = 0.7
BENDS = [0.0, *(s * x for x in (0.5, 1, 1.5, 2, 3, 4, 5, 6, 8, 10, 14, 20, 28, 40, 60, 90) for s in (-1, 1))]

mp.mp.dps = DIGITS


@functools.cache
def legendre(points):
    """Nodes and weights in the current precision."""
    rule = []
    for guess in np.polynomial.legendre.leggauss(points)[0]:
        x = mp.findroot(lambda t: mp.legendre(points, t), mp.mpf(float(guess)))
        slope = points * (x * mp.legendre(points, x) - mp.legendre(points - 1, x)) / (x * x - 1)
        rule.append((x, 2 / ((1 - x * x) * slope**2)))
    return rule


def expectation(functions, count, m, s, extra=(), reach=40):
    """Expectations of the `count` values of functions(U), by panels of one standard deviation at most."""
    knots = {mp.mpf(u) for u in range(-reach, reach + 1)}
    knots |= {u for u in ((mp.mpf(x) - m) / s for x in BENDS) if abs(u) < reach}
    knots |= {u for u in extra if abs(u) < reach}
    edges = sorted(knots)
    totals = [mp.mpf(0)] * count
    for a, b in itertools.pairwise(edges):
        if b - a < mp.mpf(10) ** -30:
            continue
        for x, w in legendre(POINTS):
            u = (a + b) / 2 + (b - a) / 2 * x
            weight = w * (b - a) / 2 * mp.npdf(u)
            values = functions(u)
            totals = [t + weight * v for t, v in zip(totals, values, strict=True)]
    return totals


def sigmoid(x):
    return 1 / (1 + mp.exp(-x))


def clip(x, low, high):
    return min(max(x, mp.mpf(low)), mp.mpf(high))


def exponential_unit(x, scale=1, depth=1, unit=1):
    return scale * (x if x > 0 else depth * mp.expm1(x / unit))


def softplus(x):
    return x + mp.log1p(mp.exp(-x)) if x > 0 else mp.log1p(mp.exp(x))


def gelu_tanh(x):
    return x * sigmoid(2 * mp.sqrt(2 / mp.pi) * (x + mp.mpf(0.044715) * x**3))


FUNCTIONS = {
    "relu": lambda x: max(x, mp.mpf(0)),
    "leaky_relu": lambda x: x if x > 0 else mp.mpf(SLOPE) * x,
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
    "gelu": lambda x: x * mp.ncdf(x),
    "tanh": mp.tanh,
    "relu6": lambda x: clip(x, 0, 6),
    "hardtanh": lambda x: clip(x, -1, 1),
    "hardsigmoid": lambda x: clip(x / 6 + mp.mpf(0.5), 0, 1),
    "softshrink": lambda x: x - clip(x, -0.5, 0.5),
    "abs": abs,
    "elu": exponential_unit,
    "selu": lambda x: exponential_unit(x, mp.mpf(1.0507009873554805), mp.mpf(1.6732632423543772)),
    "celu": lambda x: exponential_unit(x, depth=mp.mpf(CELU), unit=mp.mpf(CELU)),
    "gelu_tanh": gelu_tanh,
    "hardswish": lambda x: x * clip(x + 3, 0, 6) / 6,
    "softsign": lambda x: x / (1 + abs(x)),
    "tanhshrink": lambda x: x - mp.tanh(x),
    "softplus": lambda x: x if x > 20 else softplus(x),
    "logsigmoid": lambda x: -softplus(-x),
    "mish": lambda x: x * mp.tanh(softplus(x)),
    "hardshrink": lambda x: x if abs(x) > 0.5 else mp.mpf(0),
    "threshold": lambda x: x if x > 0.5 else mp.mpf(-1),
    "power": lambda x: x**3,
    "probit": mp.ncdf,
    "erf": mp.erf,
}

STEPS = {"probit": (mp.ncdf, 0), "erf": (lambda x: mp.erfc(-x), -1)}
"""Functions with tails that 50 digits lose next to their limits: the function minus its limit on the left,
and this limit. They are symmetric: f(x) + f(-x) = 1 + limit.
"""


def one_dimensional(name):
    """Rows: mean, std, E f, Var f (absolute)."""
    f, limit = STEPS.get(name, (FUNCTIONS[name], 0))
    rows = []
    for h, std in itertools.product(HS, STDS):
        if name in ("relu", "leaky_relu") and std != 1.0:
            continue
        mean, m, s = h * std, mp.mpf(h * std), mp.mpf(std)
        mirrored = name in STEPS and m > 0
        m = -m if mirrored else m
        reach = 60 if abs(h) < 100 else 14
        at = f(m)

        def difference_and_square(u, m=m, s=s, at=at):
            difference = f(m + s * u) - at
            return difference, difference * difference

        first, second = expectation(difference_and_square, 2, m, s, reach=reach)
        expectation_of_f = 1 - (at + first) if mirrored else at + first + limit
        rows.append([mean, std, float(expectation_of_f), float(second - first**2)])
    return rows


def conditional_mean(name, m, s):
    """E f(m + s Z)."""
    if name == "relu":
        return max(m, mp.mpf(0)) if s == 0 else m * mp.ncdf(m / s) + s * mp.npdf(m / s)
    tau = mp.sqrt(1 + s * s)
    if name == "probit":
        return mp.ncdf(m / tau)
    return m * mp.ncdf(m / tau) + s * s / tau * mp.npdf(m / tau)


def covariance(name, h, k, s1, s2, rho):
    m1, m2, a, b, r = mp.mpf(h * s1), mp.mpf(k * s2), mp.mpf(s1), mp.mpf(s2), mp.mpf(rho)
    rest = b * mp.sqrt(1 - r * r)
    f = FUNCTIONS[name]
    f0, g0 = f(m1), conditional_mean(name, m2, rest)
    extra = []
    if r != 0:
        width = (rest + (0 if name == "relu" else 1)) / (b * abs(r))
        centre = -m2 / (b * r)
        extra = [centre + width * x for x in BENDS if abs(x) < 20]

    def integrand(u):
        x = f(m1 + a * u) - f0
        y = conditional_mean(name, m2 + b * r * u, rest) - g0
        return x, y, x * y

    ex, ey, exy = expectation(integrand, 3, m1, a, extra, reach=11)
    return float((exy - ex * ey) / (a * b))


def cases(seed, count, *, scales):
    """Adversarial pairs: equal and nearly equal h near abs(rho) = 1, mixed scales, both signs."""
    rng = np.random.default_rng(seed)
    rows = []
    for rho in (*RHOS, *(-r for r in RHOS[1:])):
        sign = -1.0 if rho < 0 else 1.0
        rows += [(h, sign * h, 1.0, 1.0, rho) for h in (-8.0, -2.0, 0.0, 2.0, 8.0)]
        rows += [(0.7, sign * 0.7 + gap, 1.0, 1.0, rho) for gap in (1e-3, 1e-2, 0.1, 1.0)]
    for _ in range(count):
        h = float(rng.choice([*HS, rng.normal(), 3 * rng.normal()]))
        k = float(rng.choice([*HS, rng.normal(), 3 * rng.normal()]))
        s1, s2 = rng.choice(STDS, 2)
        s1 = float(s1)
        s2 = float(s2)
        rho = float(rng.choice(RHOS)) * float(rng.choice([-1.0, 1.0]))
        rows.append((h, k, s1, s2, rho))
    if scales:
        for std in STDS:
            for rho in (0.9, 1 - 1e-6, 1.0, -1.0):
                rows += [(h, h, std, std, rho) for h in (0.0, 2.0, -2.0, 1e4)]
    return [row if scales else (row[0], row[1], 1.0, 1.0, row[4]) for row in rows]


def write(name, rows, columns, method):
    text = ",\n".join(json.dumps(row) for row in rows)
    head = json.dumps({"columns": columns.split(), "method": method})[1:-1]
    (FIXTURES / f"{name}.json").write_text(f'{{{head},\n"rows": [\n{text}\n]}}\n')
    print(name, len(rows), "rows", flush=True)


def main():
    FIXTURES.mkdir(exist_ok=True)
    digits = f"mpmath {DIGITS} digits, composite Gauss-Legendre of the definition"
    for name in FUNCTIONS:
        write(f"moments_{name}", one_dimensional(name), "mean std expectation variance", digits)
    columns = "h k s1 s2 rho covariance/(s1*s2)"
    for name, count in (("relu", 60), ("gelu", 80), ("probit", 80)):
        rows = [[*case, covariance(name, *case)] for case in cases(1, count, scales=name != "relu")]
        write(f"covariance_{name}", rows, columns, digits + ", conditional mean in closed form")
    from tests.sdp_ref.make_conformance_fixtures import both_units  # which imports this module

    for name in ("sigmoid", "silu", "tanh"):
        rows = []
        for h, k, s1, s2, rho in cases(2, 120, scales=True):
            value = both_units(name, h * s1, k * s2, s1, s2, rho)[0] / (s1 * s2)
            rows.append([h, k, s1, s2, rho, value])
        write(f"covariance_{name}", rows, columns, "two-dimensional composite Gauss-Legendre, float64")


if __name__ == "__main__":
    main()
