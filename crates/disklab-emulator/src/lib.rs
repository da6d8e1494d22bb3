//! Real block devices that follow the disk model in real time.
