"""Manifests of oracles: statistics that an oracle must reproduce."""
