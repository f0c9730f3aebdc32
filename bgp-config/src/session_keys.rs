//! The TCP-MD5 keys of a secret: the key in use on the first line, and while it is changed another
//! valid key on the second line.

use bgp_speaker::Password;

use crate::limits::PASSWORD_OCTETS_MAX;

/// The keys of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionKeys {
    /// The key in use.
    pub password: Password,
    /// Another valid key, while the key is changed.
    pub second: Option<Password>,
}

impl SessionKeys {
    /// Reads the content of a secret.
    ///
    /// # Errors
    ///
    /// A key is too short or too long, or there are more than two. The reason quotes no key.
    pub fn read(secret: &str) -> Result<Self, String> {
        let secret = secret.trim_end_matches(['\r', '\n']);
        let mut lines = secret.split('\n');
        let password = key(lines.next().unwrap_or_default())?;
        let second = lines.next().map(key).transpose()?;
        match lines.next() {
            None => Ok(Self { password, second }),
            Some(_) => Err("has more than two lines".to_owned()),
        }
    }

    /// Returns the content of the secret with these keys.
    #[must_use]
    pub fn content(&self) -> String {
        match &self.second {
            None => format!("{}\n", &*self.password),
            Some(second) => format!("{}\n{}\n", &*self.password, &**second),
        }
    }
}

fn key(line: &str) -> Result<Password, String> {
    let key = line.strip_suffix('\r').unwrap_or(line);
    let octets = key.len();
    if (1..=PASSWORD_OCTETS_MAX).contains(&octets) {
        return Ok(key.into());
    }
    Err(format!(
        "has {octets} octets: a password has 1 to {PASSWORD_OCTETS_MAX}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_has_one_key_or_two() {
        let read = |secret: &str| {
            let keys = SessionKeys::read(secret).expect("keys");
            assert_eq!(SessionKeys::read(&keys.content()), Ok(keys.clone()));
            (keys.password, keys.second)
        };
        assert_eq!(read("old"), ("old".into(), None));
        assert_eq!(read("old\nnew"), ("old".into(), Some("new".into())));
        assert_eq!(read("a b\r\nnew"), ("a b".into(), Some("new".into())));
        let long = "x".repeat(PASSWORD_OCTETS_MAX);
        assert_eq!(read("old\nnew\r\n\n"), read("old\nnew"));
        let both = format!("{long}\n{long}");
        assert_eq!(read(&both), ((&*long).into(), Some((&*long).into())));
    }

    #[test]
    fn invalid_secret_is_rejected_without_a_quotation() {
        let long = "QXZ".repeat(PASSWORD_OCTETS_MAX);
        for (secret, reason) in [
            ("", "has 0 octets"),
            ("\nQXZ", "has 0 octets"),
            ("QXZ\n\nQXZ", "has 0 octets"),
            ("QXZ\nQXZ\nQXZ", "more than two lines"),
            (&*long, "has 240 octets"),
            (&*format!("QXZ\n{long}"), "has 240 octets"),
        ] {
            let found = SessionKeys::read(secret).expect_err("rejected");
            assert!(found.contains(reason), "{secret:?}: {found}");
            assert!(!found.contains("QXZ"), "{found}");
        }
    }
}
