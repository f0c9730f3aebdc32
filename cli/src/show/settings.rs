//! The applied configuration, in the form of a file.

use std::fmt::Write as _;

use daemon_common::report::{Fact, NeighborSettings, Settings};

use super::cells::clean;

pub(super) fn print(report: &Settings) -> String {
    let mut text = format!("# from {}\n", clean(&report.from));
    for note in &report.notes {
        let _ = writeln!(text, "# note: {}", clean(note));
    }
    keys(&mut text, &report.keys);
    for (section, all) in [
        ("neighbor", &report.neighbors),
        ("neighbor_range", &report.ranges),
    ] {
        for one in all {
            neighbor(&mut text, section, one);
        }
    }
    text
}

fn neighbor(text: &mut String, section: &str, of: &NeighborSettings) {
    let _ = writeln!(text, "\n[[{section}]]  # from {}", clean(&of.from));
    let _ = writeln!(text, "name = {}", clean(&of.name));
    keys(text, &of.keys);
    for (name, rules) in [("import", &of.import), ("export", &of.export)] {
        match rules.as_slice() {
            [one] => {
                let _ = writeln!(text, "{name} = {}", clean(one));
            }
            several => {
                let _ = writeln!(text, "{name} =");
                for rule in several {
                    let _ = writeln!(text, "    {}", clean(rule));
                }
            }
        }
    }
}

fn keys(text: &mut String, keys: &[Fact]) {
    for Fact { name, value } in keys {
        let _ = writeln!(text, "{} = {}", clean(name), clean(value));
    }
}
