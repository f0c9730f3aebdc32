//! The connection between a speaker and a kernel, without I/O.

mod convergence;
mod duties;
mod glue;
mod learned;
mod ready;
#[cfg(test)]
mod tests;
mod weights;

pub use self::glue::{Node, Tables};
