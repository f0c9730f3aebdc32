//! Passwords that the store points to, in a directory of files: the key `k` of the secret `s` is
//! the file `s/k`.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use intent::store::{SecretKeyRef, Secrets};

use crate::limits::SECRET_OCTETS_MAX;

/// Those of these that can be read.
pub(crate) fn read(directory: &Path, wanted: impl IntoIterator<Item = SecretKeyRef>) -> Secrets {
    let wanted = wanted.into_iter();
    let found = wanted.filter_map(|secret| {
        let at = directory
            .join(plain(&secret.name)?)
            .join(plain(&secret.key)?);
        let mut text = String::new();
        let file = File::open(at).ok()?;
        file.take(SECRET_OCTETS_MAX)
            .read_to_string(&mut text)
            .ok()?;
        let password = text.trim_end_matches(['\r', '\n']).into();
        Some(((secret.name, secret.key), password))
    });
    found.collect()
}

/// A name that leads into no other directory.
fn plain(name: &str) -> Option<&str> {
    let elsewhere = name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']);
    (!elsewhere).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_store_lead_nowhere_else() {
        let directory = tempfile::tempdir().expect("a directory");
        let within = directory.path().join("within");
        std::fs::create_dir_all(within.join("bgp")).expect("made");
        std::fs::write(directory.path().join("outside"), "no").expect("written");
        std::fs::write(within.join("bgp/mesh"), "word\n").expect("written");
        let secret = |name: &str, key: &str| SecretKeyRef {
            name: name.into(),
            key: key.into(),
            optional: None,
        };
        let wanted = [
            secret("bgp", "mesh"),
            secret("bgp", "absent"),
            secret("..", "outside"),
            secret("bgp", "../../outside"),
            secret("", "bgp"),
        ];
        let found = read(&within, wanted);
        assert_eq!(found.len(), 1);
        assert_eq!(&*found[&("bgp".to_owned(), "mesh".to_owned())], "word");
    }
}
