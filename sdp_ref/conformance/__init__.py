"""The conformance kit: tests of general properties of propagation rules, and of the claims of a rule."""

from sdp_ref.conformance.kit import CHECKS, check_rule
from sdp_ref.conformance.report import CheckResult, ConformanceReport
from sdp_ref.conformance.trial import Check

__all__ = ["CHECKS", "Check", "CheckResult", "ConformanceReport", "check_rule"]
