"""Studies: whatever runs many experiments (compare, reproduce, matrix, bench). They may import every room."""
