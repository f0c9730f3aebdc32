//! Removes secrets from messages about manifests.

use calico_model::is_secretive;

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

    use crate::read::documents;

    /// Returns the messages about a text of all readers of manifests.
    fn error_of(text: &str) -> String {
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
            let error_of = error_of(&format!("{head}  {field}\n  peerIP: 10.0.0.1\n"));
            assert!(!error_of.is_empty(), "accepted: {field}");
            assert!(!error_of.contains(PART), "{field}: {error_of}");
        }
        let secret =
            "apiVersion: v1\nkind: Secret\nmetadata:\n  name: s\ndata:\n  key: QXZQXZQXZ\n";
        let error_of = error_of(secret);
        assert!(
            !error_of.is_empty() && !error_of.contains(PART),
            "{error_of}"
        );
    }
}
