"""Sums over the triplets of a batch, and the rank lists that give them their weights."""
