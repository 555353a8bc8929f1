"""Arrow in, Arrow out: what is done to changes between decoding and writing."""
