"""Memory limits for the covariance matrices of a step."""

from __future__ import annotations

from dataclasses import dataclass

from sdp_ref.errors import CovarianceSizeError
from sdp_ref.rules.full.joint import Joint

_NUMBER = 8  # bytes per number
_HINT = "rule 'low_rank' carries covariances as factors of low rank, which fit"


@dataclass(frozen=True)
class Budget:
    """Memory that a rule may use at one op of a net."""

    rule: str
    path: str
    max_bytes: float

    def fit(self, joint: Joint, n: int, *, built: int = 1, entries: int = 0) -> None:
        batch = len(next(iter(joint.means.values())))
        needed = _NUMBER * (joint.entries + batch * (built * n * n + entries))
        if needed > self.max_bytes:
            raise CovarianceSizeError(
                self.rule,
                f"covariances of {batch} x {n} x {n} components: they would take {needed:,} bytes with what "
                f"computing them needs, more than its max_bytes={self.max_bytes:,}",
                self.path,
                needed,
                _HINT,
            )
