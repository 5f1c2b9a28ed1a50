"""What `rcad demo` computes and shows: three acts, a verdict for each by a rule written down beforehand, one page.

An act computes numbers, plain enough for JSON; verdicts, pictures and page read these numbers alone.
"""
