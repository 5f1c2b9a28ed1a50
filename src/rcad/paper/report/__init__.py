"""The report on the paper: every record under a folder as one page, with Markdown, LaTeX and pictures beside it.

Reads records alone; nothing is computed but means, intervals and pictures.
"""

from rcad.paper.report.making import build

__all__ = ["build"]
