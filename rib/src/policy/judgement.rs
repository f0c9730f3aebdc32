//! What rules said of a path, for people.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Which of a policy's rules a path has met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The name of the rules.
    pub rules: String,
    /// The names of the terms that are about the path, in their order: those that edit, and at
    /// the end the one that decides. Without such a one it is what the rules say otherwise.
    pub terms: Vec<String>,
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.rules)?;
        match self.terms.last() {
            Some(last) => write!(f, ", {last}"),
            None => Ok(()),
        }
    }
}
