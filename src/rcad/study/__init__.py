"""Does a method help on somebody's own data: tuned on each split, tested once, judged over all."""
