"""What every layer may use: errors, files, paths, progress, processes, and the hash of code."""
