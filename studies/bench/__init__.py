"""Benchmarks of this machine. A new one is a new file and one more entry in `BENCHMARKS`."""

from studies.registry import LazyRegistry

BENCHMARKS = LazyRegistry(
    "WHAT",
    {
        "core": "studies.bench.core:CORE",
        "network": "studies.bench.network:NETWORK",
        "audit": "studies.bench.audit:AUDIT",
        "hostile": "studies.bench.hostile:HOSTILE",
        "scale": "studies.bench.scale:SCALE",
    },
)
