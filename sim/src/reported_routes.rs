//! The kernel's routes according to the events of a BGP client.
//!
//! This side of the oracle `events` reads events as an operator's query does, by stable name and
//! field. The other side is the kernel's own listing.

use std::collections::{BTreeMap, BTreeSet};

use daemon_common::events::Event;
use fib_sync::memory::Kernel;
use fib_sync::{Owner, Route, RouteKey};

use crate::limits::WRONG_EVENTS;

/// `ENOBUFS`: the answer was lost, and the kernel may have done what was asked.
const ANSWER_LOST: u64 = 105;

/// Prefix, table and metric of a route, as events have them.
type Key = (String, u64, u64);

/// The reported state of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// It is in the kernel, over these gateways.
    Installed(BTreeSet<String>),
    /// It is not in the kernel.
    Deleted,
    /// The kernel's answer was lost.
    Unknown,
}

/// The routes of one protocol in the view of a reader that lists the kernel's routes and then watches
/// the events.
#[derive(Debug)]
pub(crate) struct ReportedRoutes {
    owner: Owner,
    routes: BTreeMap<Key, State>,
    /// Events without the fields that they must have, at most [`WRONG_EVENTS`].
    wrong: Vec<String>,
}

impl ReportedRoutes {
    /// Begins with a listing of the kernel.
    pub(crate) fn new(kernel: &Kernel, owner: Owner) -> Self {
        let routes = listed(kernel, owner).into_iter();
        Self {
            owner,
            routes: routes
                .map(|(key, gateways)| (key, State::Installed(gateways)))
                .collect(),
            wrong: Vec::new(),
        }
    }

    /// Reads an event.
    pub(crate) fn read(&mut self, event: &Event) {
        let (name, fields) = (event.kind().name, event.fields());
        let text = |field: &str| fields.get(field)?.as_str();
        let number = |field: &str| fields.get(field)?.as_u64();
        let state = match name {
            "route.installed" => text("gateways").map(|all| State::Installed(words(all))),
            "route.deleted" => Some(State::Deleted),
            "route.refused" if number("errno") == Some(ANSWER_LOST) => Some(State::Unknown),
            _ => return, // The kernel did nothing.
        };
        let key = (text("prefix"), number("table"), number("metric"));
        match (key, state) {
            ((Some(prefix), Some(table), Some(metric)), Some(state)) => {
                self.routes
                    .insert((prefix.to_owned(), table, metric), state);
            }
            _ if self.wrong.len() < WRONG_EVENTS => {
                self.wrong
                    .push(format!("{name} without a field: {fields:?}"));
            }
            _ => {}
        }
    }

    /// Returns what differs from the kernel's routes.
    pub(crate) fn check(&self, kernel: &Kernel) -> Vec<String> {
        let mut wrong = self.wrong.clone();
        let found = listed(kernel, self.owner);
        for key in found
            .keys()
            .chain(self.routes.keys())
            .collect::<BTreeSet<_>>()
        {
            let reported = self.routes.get(key);
            let is_right = match (reported, found.get(key)) {
                (Some(State::Unknown), _) | (Some(State::Deleted), None) => true,
                (Some(State::Installed(gateways)), Some(found)) => gateways == found,
                _ => false,
            };
            if !is_right {
                let found = found.get(key);
                wrong.push(format!(
                    "route {key:?}: reported {reported:?}, listed {found:?}"
                ));
            }
        }
        wrong
    }
}

/// Returns the routes of a protocol in the kernel, with their gateways.
fn listed(kernel: &Kernel, owner: Owner) -> BTreeMap<Key, BTreeSet<String>> {
    let own = kernel.routes().filter(|(_, route)| route.owner() == owner);
    own.map(|(key, route)| (named(key), gateways(route)))
        .collect()
}

fn named(key: &RouteKey) -> Key {
    (key.prefix.to_string(), key.table.into(), key.metric.into())
}

fn gateways(route: &Route) -> BTreeSet<String> {
    let gateways = route.next_hops.iter().filter_map(|hop| hop.gateway);
    gateways.map(|gateway| gateway.to_string()).collect()
}

fn words(text: &str) -> BTreeSet<String> {
    text.split_whitespace().map(str::to_owned).collect()
}
