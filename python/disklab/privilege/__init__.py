"""Root's part and the caller's part of a command under sudo: docs/contracts/9-root-part.md."""
