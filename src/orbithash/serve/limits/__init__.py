"""Which requests are accepted: keys, rates, sizes, connections."""
