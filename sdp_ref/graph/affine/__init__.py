"""Affine ops, y = A x + b, applied to values, to scales and to the rows of a matrix."""

from __future__ import annotations

from sdp_ref.graph.affine.base import Affine
from sdp_ref.graph.affine.components import Elementwise, Rearrangement
from sdp_ref.graph.affine.layers import LinearMap, Normalisation
from sdp_ref.graph.affine.table import AFFINE

__all__ = ["AFFINE", "Affine", "Elementwise", "LinearMap", "Normalisation", "Rearrangement"]
