"""What a kernel declares: its variants, their tiles, launch formulas and geometry."""
