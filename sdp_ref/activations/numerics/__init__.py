"""Integrals under the normal law that the activations' moments are made of."""
