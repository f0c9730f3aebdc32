//! The evaluation of a path by rules, for operators.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// The rules of a policy that matched a path.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Evaluation {
    /// The name of the rules.
    pub rules: String,
    /// The names of the matching terms, in their order: those that edit, and at the end the one
    /// that decides. Without a deciding one the default outcome of the rules applies.
    pub terms: Vec<String>,
}

impl fmt::Display for Evaluation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.rules)?;
        match self.terms.last() {
            Some(last) => write!(f, ", {last}"),
            None => Ok(()),
        }
    }
}
