"""Admission control: access, rate limits, concurrency limits, request bodies, connections."""
