"""Tables of runs: declared, planned, run, summarised."""
