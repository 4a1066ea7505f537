"""What recipes/ may say: arms, points, scales, mixes and claims, typed, read and held against each other."""
