"""The machine that trains: its processes, threads, signals, precision and memory."""
