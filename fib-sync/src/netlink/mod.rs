//! The driver for Linux.
