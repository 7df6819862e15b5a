"""Pure functions of distance histograms, one value per query."""
