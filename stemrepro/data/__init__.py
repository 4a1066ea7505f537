"""From text to token blocks, and to the items of benchmarks."""
