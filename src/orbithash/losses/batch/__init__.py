"""What losses share: checked inputs, and the pairs, rank lists and triplets of a batch."""
