"""Make moments.json and ops.json in sdp_ref/conformance, the kit's references, independently of sdp_ref.

    python -m tests.sdp_ref.make_conformance_fixtures        (a quarter of an hour)

X1 = m1 + s1 U, X2 = m2 + s2 (rho U + sqrt(1 - rho^2) T) with independent standard normals U and T.
Moments of one unit: 30-digit composite Gauss-Legendre quadrature of the definition (mpmath). Those of two:
composite Gauss-Legendre over U and T in double precision, with panels that end at every kink; where
abs(rho) = 1, mpmath over U alone. `spread` is the variance of (f1 - E f1)(f2 - E f2), from which the
standard errors of sampled covariances follow.

Ops of several components: tensor rules of Gauss and Hermite (exact where the moments are those of
polynomials), quadratures of two variables for maxima, and the distribution function for the largest of some.
"""

import itertools
import json
from pathlib import Path

import mpmath as mp
import numpy as np
from scipy.special import erf, expit, ndtr

from tests.sdp_ref.make_fixtures import FUNCTIONS, exponential_unit, legendre

FOLDER = Path(__file__).parents[2] / "sdp_ref" / "conformance"
TARGET, OPS = FOLDER / "moments.json", FOLDER / "ops.json"
SLOPE = 0.01  # torch's default of LeakyReLU
POINTS = 20
BENDS = [0.0, *(s * x for x in (0.5, 1, 1.5, 2, 3, 4, 5, 6, 8, 10, 14, 20, 28, 40) for s in (-1, 1))]
ROWS = [  # h, k (means in standard deviations), s1, s2, rho
    (0.0, 0.0, 1.0, 1.0, 0.5),
    (2.0, 2.0, 1.0, 1.0, 0.5),
    (-2.0, -2.0, 1.0, 1.0, 0.5),
    (4.0, 4.0, 1.0, 1.0, 0.5),
    (0.5, -0.5, 1.0, 1.0, 0.0),
    (1.0, -0.5, 1.0, 2.0, -0.75),
    (-2.0, -2.0, 1.0, 1.0, 0.9),
    (-4.0, -1.0, 1.0, 1.0, 0.3),
    (-4.0, -4.0, 1.0, 1.0, 0.75),
    (-8.0, 0.5, 1.0, 1.0, 0.5),
    (40.0, -40.0, 1.0, 1.0, 0.5),
    (0.5, 0.5, 1.0, 1.0, 1.0),
    (0.5, -0.5, 1.0, 1.0, -1.0),
    (0.75, 0.25, 1.0, 2.0, 1.0),
    (0.7, 0.71, 1.0, 1.0, 1 - 1e-6),
    (0.0, 0.0, 0.125, 0.125, 0.9),
    (1.0, 1.0, 4.0, 0.25, 0.6),
]

mp.mp.dps = 30


SELU = 1.0507009873554805, 1.6732632423543772  # Klambauer et al. (2017), to double precision

EXACT = {
    **FUNCTIONS,
    "leaky_relu": lambda x: x if x > 0 else mp.mpf(SLOPE) * x,
    "celu": exponential_unit,  # of alpha 1
    "threshold": lambda x: max(x, mp.mpf(0)),  # 0 up to 0
    "exp": mp.exp,
    "square": lambda x: x * x,
    "sin": mp.sin,
    "cos": mp.cos,
}

FAST = {
    "relu": lambda x: np.maximum(x, 0.0),
    "leaky_relu": lambda x: np.where(x > 0, x, SLOPE * x),
    "tanh": np.tanh,
    "sigmoid": expit,
    "silu": lambda x: x * expit(x),
    "gelu": lambda x: x * ndtr(x),
    "gelu_tanh": lambda x: x * expit(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)),
    "exp": np.exp,
    "square": np.square,
    "power": lambda x: x**3,
    "sin": np.sin,
    "cos": np.cos,
    "abs": np.abs,
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0.0))),
    "selu": lambda x: SELU[0] * np.where(x > 0, x, SELU[1] * np.expm1(np.minimum(x, 0.0))),
    "celu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0.0))),
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "hardtanh": lambda x: np.clip(x, -1, 1),
    "hardsigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
    "relu6": lambda x: np.clip(x, 0, 6),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "softshrink": lambda x: x - np.clip(x, -0.5, 0.5),
    "hardshrink": lambda x: np.where(np.abs(x) > 0.5, x, 0.0),
    "threshold": lambda x: np.maximum(x, 0.0),
    "tanhshrink": lambda x: x - np.tanh(x),
    "softplus": lambda x: np.where(x > 20, x, np.logaddexp(x, 0.0)),
    "logsigmoid": lambda x: -np.logaddexp(-x, 0.0),
    "mish": lambda x: x * np.tanh(np.logaddexp(x, 0.0)),
    "probit": ndtr,
    "erf": erf,
}

REACH = {"exp": 30}  # standard deviations, of the fourth power as well; 12, and 9 of a pair, of the others


NODES = legendre(POINTS)


def expectation(functions, count, lines, reach=12):
    """E of `count` functions of U; `lines` are the (m, s) of the arguments whose bends the panels respect."""
    knots = {mp.mpf(u) for u in range(-reach, reach + 1)}
    for m, s in lines:
        knots |= {u for u in ((mp.mpf(b) - m) / s for b in BENDS) if abs(u) < reach}
        if abs(m / s) > 12:  # a far tail: the part of the line beyond the kink is where a ReLU is
            u = -m / s
            knots |= {u + d for d in range(-4, 12) if abs(u + d) < 60}
    totals = [mp.mpf(0)] * count
    for a, b in itertools.pairwise(sorted(knots)):
        if b - a < mp.mpf(10) ** -25 or b - a > 5:
            continue
        for x, w in NODES:
            u = (a + b) / 2 + (b - a) / 2 * x
            weight = w * (b - a) / 2 * mp.npdf(u)
            totals = [t + weight * v for t, v in zip(totals, functions(u), strict=True)]
    return totals


def one(name, m, s):
    """E f, Var f, variance of (f - E f)^2."""
    f, m, s, reach = EXACT[name], mp.mpf(m), mp.mpf(s), REACH.get(name, 12)
    at = f(m)
    mean = expectation(lambda u: [f(m + s * u) - at], 1, [(m, s)], reach)[0]

    def central_powers(u):
        deviation = f(m + s * u) - at - mean
        return deviation**2, deviation**4

    second, fourth = expectation(central_powers, 2, [(m, s)], reach)
    return float(at + mean), float(second), float(fourth - second**2)


def line(name, m1, m2, s1, s2, sign):
    """Covariance and spread where X2 is a function of X1."""
    f, reach = EXACT[name], REACH.get(name, 12)
    a, b, s, t = mp.mpf(m1), mp.mpf(m2), mp.mpf(s1), sign * mp.mpf(s2)
    lines = [(a, s), (b, t)]
    e1, e2 = expectation(lambda u: (f(a + s * u), f(b + t * u)), 2, lines, reach)

    def product_and_square(u):
        product = (f(a + s * u) - e1) * (f(b + t * u) - e2)
        return product, product * product

    covariance, square = expectation(product_and_square, 2, lines, reach)
    return float(covariance), float(square - covariance * covariance)


def panels(edges):
    x, w = np.polynomial.legendre.leggauss(POINTS)
    width = np.diff(edges)[:, None] / 2
    u = (edges[:-1, None] + width * (x + 1)).ravel()
    return u, (width * w).ravel() * np.exp(-u * u / 2) / np.sqrt(2 * np.pi)


def edges(lines, reach):
    knots = [np.linspace(-reach, reach, 1 + int(4 * reach)), *((np.array(BENDS) - m) / s for m, s in lines)]
    return np.unique(np.clip(np.concatenate(knots), -reach, reach))


def plane(name, m1, m2, s1, s2, rho):
    """Covariance and spread by quadrature over U and T."""
    f, rest, reach = FAST[name], s2 * np.sqrt((1 - rho) * (1 + rho)), float(REACH.get(name, 9))
    lines = [(m1, s1)]
    if rho:
        lines.append((m2, s2 * rho))  # where the conditional mean of X2 bends
        kink, width = -m2 / (s2 * rho), rest / (s2 * abs(rho))
        lines.append((-kink / max(width, 1e-9), 1 / max(width, 1e-9)))  # kink + width * BENDS
    u, w = panels(edges(lines, reach))
    x = f(m1 + s1 * u)
    first, second = np.empty_like(u), np.empty_like(u)
    y_mean = one(name, m2, s2)[0]
    for i, value in enumerate(u):
        centre = m2 + s2 * rho * value
        t, v = panels(edges([(centre, rest)], reach))
        d = f(centre + rest * t) - y_mean
        first[i], second[i] = v @ d, v @ d**2
    x = x - one(name, m1, s1)[0]
    c = w @ (x * first)
    return float(c), float(w @ (x**2 * second) - c * c)


def both_units(name, m1, m2, s1, s2, rho):
    return line(name, m1, m2, s1, s2, rho) if abs(rho) == 1 else plane(name, m1, m2, s1, s2, rho)


def row(name, case):
    h, k, s1, s2, rho = case
    m1, m2 = h * s1, k * s2
    both = both_units(name, m1, m2, s1, s2, rho)
    if rho == 0:
        both = (0.0, both[1])
    e1, v1, q1 = one(name, m1, s1)
    e2, v2, q2 = one(name, m2, s2)
    return {
        "mean": [m1, m2],
        "std": [s1, s2],
        "rho": rho,
        "expectation": [e1, e2],
        "variance": [v1, v2],
        "covariance": both[0],
        "spread": [q1, q2, both[1]],
    }


def hermite(function, mean, covariance, count):
    """Mean and covariance of a smooth function of a Gaussian vector, by tensors of Gauss-Hermite rules."""
    x, w = np.polynomial.hermite_e.hermegauss(count)
    n = len(mean)
    u = np.stack(np.meshgrid(*[x] * n, indexing="ij"), -1).reshape(-1, n)
    weight = np.prod(np.stack(np.meshgrid(*[w / w.sum()] * n, indexing="ij"), -1).reshape(-1, n), 1)
    y = function(mean + u @ np.linalg.cholesky(covariance).T)
    centre = weight @ y
    return centre, (weight[:, None] * (y - centre)).T @ (y - centre)


def larger(mean, covariance, sign):
    """Of max(X, Y) = (S + |D|) / 2, S = X + Y, D = X - Y: by quadratures of pairs of linear functions."""
    turn = np.block([[np.eye(2), np.eye(2)], [np.eye(2), -np.eye(2)]])  # sums, then differences
    m, c = turn @ mean, turn @ covariance @ turn.T
    functions = [lambda x: x] * 2 + [np.abs] * 2
    means, covariances = np.empty(4), np.empty((4, 4))
    for i, f in enumerate(functions):
        means[i], _ = both(f, f, m[i], m[i], c[i, i], c[i, i], c[i, i])
        for j, g in enumerate(functions):
            _, covariances[i, j] = both(f, g, m[i], m[j], c[i, i], c[j, j], c[i, j])
    combine = np.hstack([np.eye(2), sign * np.eye(2)]) / 2
    return combine @ means, combine @ covariances @ combine.T


def both(f, g, m, n, v, w, c):
    """E f(X) and Cov(f(X), g(Y)), panels ending where X or the mean of Y given X is 0, or Y is."""
    s, t = np.sqrt(v), np.sqrt(w)
    rest = np.sqrt(max(w - c * c / v, 0.0))
    lines = [(m, s)] + ([(n, c / s)] if c else [])
    u, weight = panels(edges(lines, 9.0))
    x = f(m + s * u)
    mean = weight @ x
    if rest < 1e-9 * t:
        return mean, weight @ ((x - mean) * g(n + c / s * u))
    inner = []
    for value in u:
        centre = n + c / s * value
        q, p = panels(edges([(centre, rest)], 9.0))
        inner.append(p @ g(centre + rest * q))
    return mean, weight @ ((x - mean) * np.array(inner))


def largest(mean, covariance):
    """Of independent components, from the distribution function of the largest."""
    s = np.sqrt(np.diag(covariance))
    low, high = min(mean - 10 * s), max(mean + 10 * s)
    x, w = np.polynomial.legendre.leggauss(POINTS)
    edge = np.linspace(low, high, 401)
    t = (edge[:-1, None] + np.diff(edge)[:, None] * (x + 1) / 2).ravel()
    weight = (np.diff(edge)[:, None] / 2 * w).ravel()
    z = (t[:, None] - mean) / s
    below, density = ndtr(z), np.exp(-z * z / 2) / np.sqrt(2 * np.pi) / s
    p = weight * sum(density[:, i] * np.prod(np.delete(below, i, 1), 1) for i in range(len(s)))
    centre = p @ t
    return np.array([centre]), np.array([[p @ (t - centre) ** 2]])


def softmax(x):
    p = np.exp(x - x.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def layer_norm(x):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)


def attention(x):
    return (softmax(x[:, :1] * x[:, 1:3]) * x[:, 3:]).sum(-1, keepdims=True)


SMOOTH = {  # components, function, nodes a component
    "product": (4, lambda x: x[:, :2] * x[:, 2:], 3),
    "square": (2, np.square, 3),
    "matrix product": (6, lambda x: np.einsum("ni,nij->nj", x[:, :2], x[:, 2:].reshape(-1, 2, 2)), 3),
    "quotient": (4, lambda x: x[:, :2] / x[:, 2:], 20),
    "length": (3, lambda x: np.sqrt((x**2).sum(-1, keepdims=True)), 40),
    "softmax": (3, softmax, 40),
    "log softmax": (3, lambda x: np.log(softmax(x)), 40),
    "layer norm": (3, layer_norm, 40),
    "RMS norm": (3, lambda x: x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5), 40),
    "attention": (5, attention, 16),
}
MEANS = [-1.1, 0.4, 1.3, -0.6, 0.8, 1.7]
NOISE = 0.3


def laws(name, n):
    """Means with independent components, then with others."""
    mean = np.array(MEANS[:n]) + (np.array([0, 0, 6.0, 6.0]) if name == "quotient" else 0)
    if name in ("maximum", "minimum", "largest"):  # where it is open which one it is
        mean = np.array([0.2, 0.4, 0.3, 0.1])[:n]
    i = np.arange(n)
    joint = 0.6 ** np.abs(i[:, None] - i) * (-1.0) ** ((i[:, None] * i) // 2 % 2)
    joint = joint @ joint.T
    scale = NOISE / np.sqrt(np.diag(joint))
    return [(mean, NOISE**2 * np.eye(n)), (mean, joint * scale[:, None] * scale)]


def op_rows(name):
    rows = []
    for mean, covariance in laws(name, SMOOTH[name][0] if name in SMOOTH else 3 if name == "largest" else 4):
        if name == "largest" and rows:
            continue  # of independent components only
        if name in SMOOTH:
            moments = hermite(SMOOTH[name][1], mean, covariance, SMOOTH[name][2])
        elif name == "largest":
            moments = largest(mean, covariance)
        else:
            moments = larger(mean, covariance, 1 if name == "maximum" else -1)
        keys = ("mean", "covariance", "expectation", "moments")
        rows.append({k: v.tolist() for k, v in zip(keys, (mean, covariance, *moments), strict=True)})
    return rows


def make_ops():
    names = [*SMOOTH, "maximum", "minimum", "largest"]
    text = ",\n".join(
        f' "{name}": [\n' + ",\n".join("  " + json.dumps(r) for r in op_rows(name)) + "\n ]" for name in names
    )
    OPS.write_text("{\n" + text + "\n}\n")


def main():
    make_ops()
    tables = []
    for name in FAST:
        rows = []
        for case in ROWS:
            rows.append(row(name, case))
            print(name, case, rows[-1]["covariance"], flush=True)
        text = ",\n".join("  " + json.dumps(r) for r in rows)
        tables.append(f'"{name}": [\n{text}\n ]')
    TARGET.write_text("{\n " + ",\n ".join(tables) + "\n}\n")


if __name__ == "__main__":
    main()
