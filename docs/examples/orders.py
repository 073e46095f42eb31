"""The table of orders of convergence in docs/conformance.md, from the conformance kit.

``python docs/examples/orders.py`` takes some twenty seconds.
"""

import math

import sdp_ref as sr

NETS, QUANTITIES = ("affine", "smooth", "kinked"), ("mean", "covariance", "law")


def entry(numbers, net):
    """Orders on one kind of net, rounded; a dash for nets and laws that the kit does not test."""
    orders = [numbers.get(f"{net} {quantity}") for quantity in QUANTITIES]
    if orders[:2] == [None, None]:
        return "–"
    if all(order is None or math.isinf(order) for order in orders):
        return "exact"
    texts = {None: "–", math.inf: "exact"}
    return ", ".join(texts[o] if o in texts else str(round(o) + 0) for o in orders)


def main():
    """Print a row for all rules with the same orders."""
    rules = {}
    for rule in sr.rules():
        numbers = sr.check_rule(rule, only="order")["order"].numbers
        rules.setdefault(tuple(entry(numbers, net) for net in NETS), []).append(f"`{rule}`")
    print(f"| rule | {' | '.join(NETS)} |\n| --- | {' | '.join('---' for _ in NETS)} |")
    for entries, names in rules.items():
        print(f"| {', '.join(names)} | {' | '.join(entries)} |")


if __name__ == "__main__":
    main()
