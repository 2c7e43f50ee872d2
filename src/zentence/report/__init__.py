"""A page about runs: what they learnt, in words, figures and pictures, in one file that opens offline."""

from zentence.report.report import Report, write_report

__all__ = ["Report", "write_report"]
