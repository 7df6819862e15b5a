"""What scores count: items at each distance, and precisions along rank lists."""
