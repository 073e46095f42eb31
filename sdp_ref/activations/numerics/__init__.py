"""Integrals under the normal law for the moments of activations."""
