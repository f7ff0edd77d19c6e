"""The live page and the playground: a process of its own that only reads, and can harm no run."""
