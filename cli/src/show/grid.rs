//! The form of tables.

use comfy_table::{Table, presets};

/// Returns an empty table with these columns.
pub(super) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(header.to_vec());
    if let Some(first) = table.column_mut(0) {
        first.set_padding((0, 1));
    }
    table
}

/// Returns the text of a table.
pub(super) fn finish(table: &Table) -> String {
    format!("{}\n", table.trim_fmt())
}
