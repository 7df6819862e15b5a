"""Search among codes: the nearest by either distance, all within a radius, near-duplicates."""
