//! The page of events, made from the table.

use std::fmt::Write;

use super::table::{Delivery, KINDS, Kind, VERSION};

const HEAD: &str = include_str!("page.md");

fn page() -> String {
    let mut page = HEAD.replace("{version}", &VERSION.to_string());
    let mut area = "";
    for kind in KINDS {
        let of = kind.name.split('.').next().unwrap_or_default();
        if area != of {
            area = of;
            let _ = write!(
                page,
                "\n## {area}\n\n| event | level | fields | meaning |\n|---|---|---|---|\n"
            );
        }
        row(&mut page, kind);
    }
    page
}

fn row(page: &mut String, kind: &Kind) {
    let fields = kind.fields.iter().map(|field| {
        let optional = if field.optional { "?" } else { "" };
        format!("`{}`{optional} {}", field.name, field.of)
    });
    let fields = fields.collect::<Vec<_>>().join(", ");
    let level = match kind.delivery {
        Delivery::Kept => kind.level.as_str().to_ascii_lowercase(),
        Delivery::Each => format!(
            "{}; each on demand",
            kind.level.as_str().to_ascii_lowercase()
        ),
        Delivery::OnDemand => "on demand".to_owned(),
    };
    let _ = writeln!(
        page,
        "| `{}` | {level} | {fields} | {} |",
        kind.name, kind.doc
    );
}

// Promise (Daemons): Names and fields of events come from one table, and the operators' page is
// generated from it.
#[test]
fn page_of_events_is_made_from_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operate/events.md");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(path, page()).expect("docs/operate can be written");
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    let is_current = written == page();
    assert!(is_current, "run the test with UPDATE_EXPECT=1 to write it");
}

#[test]
fn names_of_events_are_unique_and_well_formed() {
    let mut names: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
    let is_word = |word: &str| {
        !word.is_empty()
            && word
                .bytes()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_')
    };
    for name in &names {
        let parts: Vec<&str> = name.split('.').collect();
        assert!(
            parts.len() == 2 && parts.iter().all(|part| is_word(part)),
            "{name}"
        );
    }
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
}

#[test]
fn fields_of_one_name_have_one_type() {
    let mut types = std::collections::BTreeMap::new();
    for field in KINDS.iter().flat_map(|kind| kind.fields) {
        let of = types.entry(field.name).or_insert(field.of);
        assert_eq!(*of, field.of, "{}", field.name);
    }
}
