"""What is measured: each recipe's `measure:` names a file of this folder, whose functions its metrics name."""
