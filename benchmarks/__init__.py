"""What measures speed and quality; `python -m benchmarks` writes the tables."""
