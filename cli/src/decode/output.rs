//! The output of decoded messages.

use std::io::Write;

use crate::decode::schema::Line;

/// The destination of lines.
pub(crate) struct Output<W>(pub(crate) W);

impl<W: Write> Output<W> {
    /// Prints one object.
    pub(crate) fn line(&mut self, line: &Line<'_>) -> anyhow::Result<()> {
        let text = serde_json::to_vec(line)?;
        self.0.write_all(&text)?;
        self.0.write_all(b"\n")?;
        Ok(())
    }
}
