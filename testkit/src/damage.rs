//! Damaged forms of a text, for tests of parsers and of their reports.

/// Insertions that end, begin or continue a string, a comment, a key, a value or a section of most
/// formats.
const INSERTED: &[&str] = &[
    "\n",
    "\"",
    "'",
    "=",
    "#",
    " ",
    "[",
    "]",
    "{",
    "}",
    ",",
    "\\",
    "\u{0}",
    "ä",
    "\"\"\"",
    "'''",
    "\n[x]\n",
    "\nx = 1\n",
    "7",
];

/// Returns the forms of a text with one damage. At each character: something is inserted before it, and
/// the character, the rest of its line or the rest of the text is missing.
///
/// ```
/// let texts: Vec<String> = testkit::damaged("asn = 1\n").collect();
/// assert!(texts.contains(&"asn = \"1\n".to_owned()));
/// assert!(texts.contains(&"asn  1\n".to_owned()));
/// assert!(texts.contains(&"as\n".to_owned()));
/// assert!(texts.contains(&"asn".to_owned()));
/// ```
pub fn damaged(text: &str) -> impl Iterator<Item = String> {
    let places = (0..=text.len()).filter_map(|at| text.split_at_checked(at));
    places.flat_map(|(before, after)| {
        let inserted = INSERTED
            .iter()
            .map(move |damage| format!("{before}{damage}{after}"));
        let mut rest = after.chars();
        rest.next();
        let rest = rest.as_str();
        let line = rest.find('\n').and_then(|end| rest.get(end..));
        let shortened = [rest, line.unwrap_or_default(), ""];
        inserted.chain(shortened.map(|rest| format!("{before}{rest}")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_at_every_character_and_of_every_kind() {
        let texts: Vec<String> = damaged("aä\nb").collect();
        assert_eq!(texts.len(), 5 * (INSERTED.len() + 3));
        for at in [0, 1, 3, 4, 5] {
            let (before, after) = "aä\nb".split_at(at);
            for damage in INSERTED {
                assert!(texts.contains(&format!("{before}{damage}{after}")), "{at}");
            }
            assert!(texts.contains(&before.to_owned()), "{at}");
        }
        for (at, shortened) in ["ä\nb", "a\nb", "aäb", "aä\n"].iter().enumerate() {
            assert!(texts.contains(&(*shortened).to_owned()), "{at}");
        }
        // The rest of the first line is missing.
        assert_eq!(texts[INSERTED.len() + 1], "\nb");
    }
}
