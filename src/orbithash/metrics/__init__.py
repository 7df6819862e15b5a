"""Scores of codes: pure functions of distance histograms, and `scoring.evaluate_codes`."""
