//! Which events a reader wants.

use ipnet::IpNet;

use super::table::{Event, Kind};

/// A selection of events by name and prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Filter {
    /// A name, or the beginning of names up to a dot: `session`.
    pub(super) name: Option<String>,
    /// Only events of routes to this prefix and to those inside it.
    pub(super) prefix: Option<IpNet>,
}

impl Filter {
    #[cfg(test)]
    pub(super) fn named(name: &str) -> Self {
        Self {
            name: Some(name.to_owned()),
            prefix: None,
        }
    }

    /// Whether events of this row are wanted.
    pub(super) fn wants_kind(&self, kind: &Kind) -> bool {
        let name = self.name.as_deref();
        name.is_none_or(|name| is_named(kind.name, name))
    }

    /// Whether events of routes to this prefix are wanted.
    pub(super) fn wants_prefix(&self, prefix: Option<IpNet>) -> bool {
        let wanted = self.prefix.as_ref();
        wanted.is_none_or(|wanted| prefix.is_some_and(|prefix| wanted.contains(&prefix)))
    }

    pub(super) fn wants_event(&self, event: &Event) -> bool {
        self.wants_kind(event.kind()) && self.wants_prefix(event.prefix())
    }
}

/// Whether `name` is this event's name, or the part of it before a dot.
fn is_named(event: &str, name: &str) -> bool {
    let rest = event.strip_prefix(name);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_filter_takes_it_and_prefixes_inside() {
        let net = |text: &str| text.parse::<IpNet>().expect("a prefix");
        let filter = Filter {
            name: None,
            prefix: Some(net("10.0.0.0/8")),
        };
        let wants = |text: &str| filter.wants_prefix(Some(net(text)));
        assert!(wants("10.0.0.0/8") && wants("10.65.0.1/32"));
        assert!(!wants("0.0.0.0/0") && !wants("11.0.0.0/8") && !wants("::/0"));
        assert!(!filter.wants_prefix(None));
        assert!(Filter::default().wants_prefix(None));
    }
}
