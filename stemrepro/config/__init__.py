"""What recipes/ may say: arms, variants, scales, mixes and claims, typed, read and held against each other."""
