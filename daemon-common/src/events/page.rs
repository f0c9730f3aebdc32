//! The page of events, made from the table, and the record of its names and fields.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::table::{Delivery, FieldKind, KINDS, Kind, VERSION};

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

/// Returns the record: the version, and a line for each event and for each of its fields.
fn record(version: u32, kinds: &[Kind]) -> String {
    let mut record = format!("version {version}\n");
    for kind in kinds {
        let _ = writeln!(record, "{}", kind.name);
        for field in kind.fields {
            let optional = if field.optional { "?" } else { "" };
            let _ = writeln!(
                record,
                "{} {} {}{optional}",
                kind.name, field.name, field.of
            );
        }
    }
    record
}

/// Returns the lines of the committed record that are missing although the version is the same.
fn broken<'a>(committed: &'a str, now: &str) -> Vec<&'a str> {
    let kept: BTreeSet<&str> = now.lines().collect();
    let mut lines = committed.lines();
    match lines.next() {
        Some(version) if kept.contains(version) => {
            lines.filter(|line| !kept.contains(line)).collect()
        }
        _ => Vec::new(),
    }
}

// Promise (Daemons): A name or a field of an event is removed or renamed only with a new version.
#[test]
fn events_are_removed_only_with_a_new_version() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/events/names.txt");
    let (committed, now) = (
        std::fs::read_to_string(path).expect("the record of names"),
        record(VERSION, KINDS),
    );
    // Before the record is written, so that UPDATE_EXPECT does not hide it.
    let broken = broken(&committed, &now);
    assert!(broken.is_empty(), "VERSION must grow without: {broken:?}");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(path, &now).expect("the record can be written");
        return;
    }
    assert!(
        committed == now,
        "run the test with UPDATE_EXPECT=1 to write {path}"
    );
}

#[test]
fn renamed_field_needs_a_new_version_and_an_added_one_does_not() {
    let field = |name, of| FieldKind {
        name,
        of,
        optional: false,
    };
    let (id, reason) = (field("id", "number"), field("reason", "text"));
    let of = |fields: &'static [FieldKind]| Kind { fields, ..KINDS[0] };
    let name = KINDS[0].name;
    let committed = record(1, &[of(vec![id, reason].leak())]);
    let added = of(vec![id, reason, field("at", "number")].leak());
    assert_eq!(broken(&committed, &record(1, &[added])), [""; 0]);
    for changed in [
        vec![id],
        vec![id, field("cause", "text")],
        vec![id, field("reason", "number")],
        vec![
            id,
            FieldKind {
                optional: true,
                ..reason
            },
        ],
    ] {
        let changed = [of(changed.leak())];
        let lost = format!("{name} reason text");
        assert_eq!(broken(&committed, &record(1, &changed)), [lost]);
        assert_eq!(broken(&committed, &record(2, &changed)), [""; 0]);
    }
    let renamed = Kind {
        name: "session.other",
        ..of(vec![id, reason].leak())
    };
    assert_eq!(broken(&committed, &record(1, &[renamed])).len(), 3);
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
