//! The glue between a speaker and a kernel: pure.

mod learned;
mod settle;
mod glue;
#[cfg(test)]
mod tests;

pub use self::glue::{Node, Tables};
