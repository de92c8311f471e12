"""The data gate's parts: what can be known of a data set's files before they are trained on. `seg.datasets.check` runs it.

From a config's data sets to findings: `sources` (which pairs, read how), `stamps` (has a file changed), `cache`, `looks`
(one pair, in a worker) run by `parallel`, `tally` (their sum), `labels` and `duplicates` (what the sum means).
"""
