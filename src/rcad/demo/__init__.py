"""`rcad demo`: four experiments without a download, judged as `rcad compare` judges."""
