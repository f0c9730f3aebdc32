//! Policies that advertise routes as the least preferred ones, before a node stops (RFC 8326).

use std::collections::BTreeSet;
use std::sync::Arc;

use bgp_proto::Community;
use ipnet::IpNet;
use rib::{Edit, InterfaceGlob, Match, Outcome, Policy, Rules, Source, Term, Then};

use crate::filter::inside;

#[cfg(test)]
mod tests;

/// Interfaces of workloads, as Felix and Calico's plugins name them.
const WORKLOADS: [&str; 2] = ["cali*", "tap*"];

/// The routes that a drained node advertises as the least preferred ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Farewell {
    /// The routes that the node originates, except those of its workloads and of these ranges: service
    /// ranges and other prefixes that more than one node advertises.
    Services(BTreeSet<IpNet>),
    /// All routes.
    All,
}

impl Farewell {
    /// Returns an export policy that accepts the same routes as `policy`, and edits those of the
    /// farewell last: no earlier term depends on the changed LOCAL_PREF, and none overwrites it.
    pub fn apply(&self, policy: &Policy) -> Policy {
        let rules = match policy {
            Policy::RejectAll => return Policy::RejectAll,
            Policy::AcceptAll => Arc::new(Rules::new("all routes", Vec::new(), Outcome::Accept)),
            Policy::Rules(rules) => Arc::clone(rules),
        };
        let when = self.when();
        let mut terms = Vec::new();
        for term in &rules.terms {
            if term.then == Then::Accept {
                let mut last = term.clone();
                last.name.push_str(", graceful shutdown");
                last.when.extend(when.iter().cloned());
                last.edit.extend(edits());
                terms.push(last);
            }
            if term.then != Then::Accept || !when.is_empty() {
                terms.push(term.clone());
            }
        }
        if rules.otherwise == Outcome::Accept {
            let edits = edits().to_vec();
            terms.push(Term::new("graceful shutdown", when, edits, Then::Next));
        }
        let name = format!("graceful shutdown{}, {}", self.suffix(), rules.name);
        Policy::from(Rules::new(name, terms, rules.otherwise))
    }

    const fn suffix(&self) -> &'static str {
        match self {
            Self::Services(_) => " of services",
            Self::All => "",
        }
    }

    /// Returns the conditions of its routes.
    fn when(&self) -> Vec<Match> {
        match self {
            Self::All => Vec::new(),
            Self::Services(workloads) => vec![
                Match::Source(Source::Local),
                Match::Interface(WORKLOADS.map(InterfaceGlob::from).into()).negated(),
                Match::Net(inside(workloads.iter().copied())).negated(),
            ],
        }
    }
}

/// Returns the changes of a least preferred route (RFC 8326 §4.2): GRACEFUL_SHUTDOWN, and a
/// LOCAL_PREF for internal peers without support for the community.
pub(crate) const fn edits() -> [Edit; 2] {
    [
        Edit::AddCommunity(Community::GRACEFUL_SHUTDOWN),
        Edit::SetLocalPref(0),
    ]
}
