//! BIRD's numbered lines.

use std::fmt::{Display, Write};

/// A reply in its written form: a line begins with its code and `-`, or with a space if the code is
/// that of the line before; the last line has a space after its code.
#[derive(Debug, Default)]
pub(super) struct Lines {
    text: String,
    code: Option<u16>,
}

impl Lines {
    /// Adds a line.
    pub(super) fn line(&mut self, code: u16, text: impl Display) {
        // Writing to a string cannot fail.
        let _ = match self.code.replace(code) {
            Some(before) if before == code => writeln!(self.text, " {text}"),
            _ => writeln!(self.text, "{code:04}-{text}"),
        };
    }

    /// Ends the reply.
    pub(super) fn end(&mut self, code: u16, text: impl Display) {
        self.code = None;
        let _ = writeln!(self.text, "{code:04} {text}");
    }

    /// Returns the text to send so far.
    pub(super) fn take(&mut self) -> String {
        std::mem::take(&mut self.text)
    }
}
