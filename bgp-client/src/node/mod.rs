//! The connection between a speaker and a kernel, without I/O.

mod duties;
mod glue;
mod learned;
mod settle;
#[cfg(test)]
mod tests;

pub use self::glue::{Node, Tables};
