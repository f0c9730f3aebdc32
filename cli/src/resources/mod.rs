//! `cambric get`, `apply`, `create`, `replace` and `delete`: the resources of the store, with the
//! words, manifests, tables and settings that users of calicoctl have.

mod columns;
mod connect;
mod delete;
mod fetch;
mod input;
mod notes;
mod outcomes;
mod print;
mod results;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use connect::Connection;
pub(crate) use delete::{Delete, delete};
pub(crate) use fetch::{Get, get};
pub(crate) use print::aligned;
pub(crate) use write::{Apply, Create, Write, apply, create, replace};
