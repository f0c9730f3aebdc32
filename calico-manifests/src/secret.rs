//! Removes secrets from messages about manifests.

/// Parts of the names of fields that may hold secrets.
const SECRETIVE: [&str; 7] = ["pass", "secret", "token", "key", "cred", "auth", "data"];

/// Returns whether a field, by its path, may hold a secret.
pub(super) fn is_secretive(field: &str) -> bool {
    let field = field.to_ascii_lowercase();
    SECRETIVE.iter().any(|part| field.contains(part))
}

/// Returns a message without quoted values, in quotation marks of any kind.
pub fn without_values(message: &str) -> String {
    const MARKS: [char; 3] = ['`', '"', '\''];
    let mut out = String::with_capacity(message.len());
    let mut rest = message;
    while let Some((at, mark)) = rest.char_indices().find(|(_, c)| MARKS.contains(c)) {
        let (before, quoted) = rest.split_at(at + mark.len_utf8());
        out.push_str(before);
        // The last mark of its kind, because the value may contain some.
        let Some(end) = quoted.rfind(mark) else {
            out.push('…');
            return out;
        };
        out.push('…');
        rest = &quoted[end..];
        out.push(mark);
        rest = &rest[mark.len_utf8()..];
    }
    out.push_str(rest);
    out
}

/// Returns whether the text may hold a secret on this line, from 1, or on an adjacent one.
pub(super) fn line_is_secretive(text: &str, line: u64) -> bool {
    let line = usize::try_from(line).unwrap_or(usize::MAX);
    let around = text.lines().skip(line.saturating_sub(2)).take(3);
    around.into_iter().any(is_secretive)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use calico_model::encode_strict;

    use super::*;
    use crate::read::documents;

    #[test]
    fn quoted_values_are_left_out() {
        for (message, expected) in [
            (
                "invalid type: string \"a\"b\", expected u16",
                "invalid type: string \"…\", expected u16",
            ),
            ("unknown anchor `x", "unknown anchor `…"),
            ("nothing quoted", "nothing quoted"),
        ] {
            assert_eq!(without_values(message), expected);
        }
    }

    /// Returns the messages about a text of all readers of manifests.
    fn said(text: &str) -> String {
        let documents = match documents(Path::new("peer.yaml"), text) {
            Ok(documents) => documents,
            Err(fault) => return fault.to_string(),
        };
        let refused = documents.iter().filter_map(|document| {
            let error = encode_strict(document.value()).err()?;
            let faults = document.faults(&error);
            Some(faults.iter().map(ToString::to_string).collect::<String>())
        });
        refused.collect()
    }

    #[test]
    fn secrets_in_manifests_are_not_quoted() {
        const PART: &str = "QXZ";
        let head =
            "apiVersion: projectcalico.org/v3\nkind: BGPPeer\nmetadata:\n  name: rr1\nspec:\n";
        for field in [
            "password: QXZQXZQXZ",
            "password: *QXZQXZQXZ",
            "password: \"QXZQXZQXZ",
            "password: [QXZQXZQXZ]",
            "password:\n    secretKeyRef: QXZQXZQXZ",
            "password:\n    secretKeyRef:\n      name: [QXZQXZQXZ]",
            "password: {QXZQXZQXZ",
            "password: QXZQXZQXZ: 1",
            "password: !QXZQXZQXZ 1",
            "password: |QXZQXZQXZ",
            "password: @QXZQXZQXZ",
            "password: `QXZQXZQXZ",
            "password: 'QXZQXZQXZ' x",
            "pasword: QXZQXZQXZ",
        ] {
            let said = said(&format!("{head}  {field}\n  peerIP: 10.0.0.1\n"));
            assert!(!said.is_empty(), "accepted: {field}");
            assert!(!said.contains(PART), "{field}: {said}");
        }
        let secret =
            "apiVersion: v1\nkind: Secret\nmetadata:\n  name: s\ndata:\n  key: QXZQXZQXZ\n";
        let said = said(secret);
        assert!(!said.is_empty() && !said.contains(PART), "{said}");
    }
}
