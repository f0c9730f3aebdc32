//! The lines that `Log` rules write to the kernel's log: their prefix, and their rate.

use super::owner::Owner;
use super::ruleset::Rate;
use crate::limits::{LOG_PREFIX, LOG_PREFIX_OCTETS_MAX};

/// The end of each prefix, as in Calico.
const END: &str = ": ";

/// The settings of `Log` rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// The prefix. In it `%t` stands for the tier, `%k` for the kind, `%n` for the name, and `%p` for
    /// the name after the namespace, if there is one.
    pub prefix: String,
    /// The maximum rate of lines; `None`: no limit.
    pub rate: Option<Rate>,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self {
            prefix: LOG_PREFIX.into(),
            rate: None,
        }
    }
}

impl LogSettings {
    /// Returns the prefix for the rules of a policy or profile. The end of a long one is cut off.
    pub(super) fn prefix_of(&self, owner: &Owner) -> String {
        let mut text = String::new();
        let mut rest = self.prefix.as_str();
        while let Some((before, after)) = rest.split_once('%') {
            text.push_str(before);
            let mut letters = after.chars();
            match letters.next() {
                Some('t') => text.push_str(&owner.tier),
                Some('k') => text.push_str(owner.kind),
                Some('n') => text.push_str(&owner.name),
                Some('p') => {
                    if let Some(namespace) = &owner.namespace {
                        text.push_str(namespace);
                        text.push('/');
                    }
                    text.push_str(&owner.name);
                }
                // Not a specifier; the letter after it may begin one.
                _ => {
                    text.push('%');
                    rest = after;
                    continue;
                }
            }
            rest = letters.as_str();
        }
        text.push_str(rest);
        let room = LOG_PREFIX_OCTETS_MAX - END.len();
        let shown = text.chars().map(|c| match c {
            '"' | '\\' => '\'',
            ' '..='~' => c,
            _ => '?',
        });
        shown.take(room).chain(END.chars()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str, owner: &Owner) -> String {
        let settings = LogSettings {
            prefix: text.into(),
            rate: None,
        };
        settings.prefix_of(owner)
    }

    #[test]
    fn specifiers_are_replaced_as_in_calico() {
        let cluster = Owner {
            id: "gnp/default.ep2-4".into(),
            kind: "gnp",
            tier: "default".into(),
            name: "ep2-4".into(),
            ..Owner::default()
        };
        let namespaced = Owner {
            id: "np/prod/web".into(),
            kind: "np",
            tier: "first".into(),
            name: "web".into(),
            namespace: Some("prod".into()),
            ..Owner::default()
        };
        for (text, of_cluster, of_namespace) in [
            (
                "aXy9%n%%t %k %p",
                "aXy9ep2-4%default gnp ep2-4: ",
                "aXy9web%first np prod/web: ",
            ),
            ("calico-packet", "calico-packet: ", "calico-packet: "),
            ("50% %", "50% %: ", "50% %: "),
            ("%%", "%%: ", "%%: "),
        ] {
            assert_eq!(prefix(text, &cluster), of_cluster);
            assert_eq!(prefix(text, &namespaced), of_namespace);
        }
        assert_eq!(
            LogSettings::default().prefix_of(&cluster),
            "calico-packet: "
        );
    }

    #[test]
    fn prefix_is_what_the_kernel_and_nft_accept() {
        let owner = Owner {
            name: "a\"b\\c\nü".repeat(40),
            ..Owner::default()
        };
        let text = prefix("%n", &owner);
        assert_eq!(text.len(), LOG_PREFIX_OCTETS_MAX);
        assert!(text.starts_with("a'b'c??a"), "{text}");
        assert!(text.ends_with(END) && text.is_ascii(), "{text}");
    }
}
