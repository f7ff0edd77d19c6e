"""What is kept on disk: run directories, ledgers, and the one atomic write. No asyncio, no gRPC."""
