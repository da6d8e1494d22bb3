"""The emulator in kernels that this machine has not, started in QEMU."""
