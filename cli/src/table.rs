//! Tables in a frame, as calicoctl draws them.

/// Returns a table with these headings.
pub(crate) fn boxed(headings: &[&str], rows: &[Vec<String>]) -> String {
    let headings: Vec<String> = headings.iter().map(|&text| text.to_owned()).collect();
    let all = || std::iter::once(&headings).chain(rows);
    let mut widths = vec![0; headings.len()];
    for row in all() {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let ruler: Vec<String> = widths.iter().map(|width| "-".repeat(width + 2)).collect();
    let ruler = format!("+{}+\n", ruler.join("+"));
    let mut text = ruler.clone();
    for (at, row) in all().enumerate() {
        for (cell, width) in row.iter().zip(&widths) {
            text.push_str(&format!("| {cell:width$} "));
        }
        text.push_str("|\n");
        if at == 0 {
            text.push_str(&ruler);
        }
    }
    text + &ruler
}
