//! The glue between a speaker and a kernel: pure.

mod duties;
mod glue;
mod learned;
mod settle;
#[cfg(test)]
mod tests;

pub use self::glue::{Node, Tables};
