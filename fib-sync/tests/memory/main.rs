//! The reconciler and the watcher against the kernel in memory, in virtual time.

mod kernel;
mod property;
mod scenario;
mod world;
