//! Removes secrets from messages about resources.

/// Parts of the names of fields that may hold secrets.
const SECRETIVE: [&str; 7] = ["pass", "secret", "token", "key", "cred", "auth", "data"];

/// Returns whether a field, by its path, may hold a secret.
pub fn is_secretive(field: &str) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BgpPeerSpec, Resource};

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

    #[test]
    fn value_of_a_secret_field_is_not_quoted_by_an_error() {
        for spec in [
            r#"{"password":"QXZ"}"#,
            r#"{"password":{"secretKeyRef":"QXZ"}}"#,
            r#"{"password":{"secretKeyRef":{"key":{"QXZ":1}}}}"#,
        ] {
            let text = format!(r#"{{"spec":{spec}}}"#);
            let error = Resource::<BgpPeerSpec>::parse(text.as_bytes()).expect_err(spec);
            let text = format!("{error} {error:?}");
            assert!(!text.contains("QXZ"), "{text}");
            assert!(
                text.contains("spec.password") && text.contains("line 1"),
                "{text}"
            );
        }
        let error = Resource::<BgpPeerSpec>::parse(br#"{"spec":{"peerIP":["shown"]}}"#);
        let text = error.expect_err("a list").to_string();
        assert!(text.contains("spec.peerIP"), "{text}");
    }
}
