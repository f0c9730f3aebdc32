//! Answers about the rows of the flow log.

use daemon_common::command::FlowQuery;
use daemon_common::report::{FlowEnd, FlowRow, Flows};

use super::place::{PUBLIC, Place};
use super::table::{Key, Row, Table};
use crate::limits::FLOW_ROWS_PAGE_MAX;

/// Returns a page of the rows that meet a query, in the order of their last change.
pub(super) fn page(table: &Table, query: &FlowQuery) -> Flows {
    let mut page = Flows {
        next: table.changes(),
        ..Flows::default()
    };
    let rows = table.changed_after(query.after.unwrap_or_default());
    for (key, row) in rows.filter(|(key, _)| meets(key, query)) {
        if page.flows.len() == FLOW_ROWS_PAGE_MAX {
            page.more = true;
            page.next = page.flows.last().map_or(0, |last| last.number);
            break;
        }
        page.flows.push(report(key, row));
    }
    page
}

fn meets(key: &Key, query: &FlowQuery) -> bool {
    let is_called = |name: &str| key.source.is_called(name) || key.destination.is_called(name);
    query.endpoint.as_deref().is_none_or(is_called)
        && query
            .policy
            .as_deref()
            .is_none_or(|name| key.by.is_called(name))
        && query.allowed.is_none_or(|allowed| allowed == key.allowed)
}

impl Key {
    /// Returns the report of a row.
    pub(crate) fn report(&self, row: &Row) -> FlowRow {
        report(self, row)
    }
}

fn report(key: &Key, row: &Row) -> FlowRow {
    let is_counted = row.counted > 0;
    FlowRow {
        number: row.changed,
        source: end(&key.source),
        destination: end(&key.destination),
        protocol: protocol(key.protocol),
        port: key.port,
        direction: key.direction.field().to_owned(),
        allowed: key.allowed,
        by: key.by.report(),
        flows: row.flows,
        counted: row.counted,
        packets: is_counted.then_some(row.packets),
        bytes: is_counted.then_some(row.octets),
        first_ms: row.first_ms,
        last_ms: row.last_ms,
    }
}

fn end(place: &Place) -> FlowEnd {
    let (kind, name) = match place {
        Place::Endpoint { resource, .. } => ("endpoint", resource.clone()),
        Place::Node(name) => ("node", name.clone()),
        Place::NetworkSet(name) => ("network set", name.clone()),
        Place::Address(address) => ("address", address.to_string()),
        Place::Public => (PUBLIC, PUBLIC.to_owned()),
    };
    FlowEnd {
        kind: kind.to_owned(),
        name,
    }
}

/// Returns the name of a protocol, or its number.
fn protocol(number: u8) -> String {
    let name = match number {
        1 => "icmp",
        6 => "tcp",
        17 => "udp",
        58 => "icmpv6",
        132 => "sctp",
        136 => "udplite",
        _ => return number.to_string(),
    };
    name.to_owned()
}
