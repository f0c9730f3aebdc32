//! Events of one route, from the neighbor to the kernel.

use std::path::Path;
use std::pin::pin;

use daemon_common::command::EventQuery;
use daemon_common::control::Control;
use daemon_common::report::{EventPage, EventRecord};
use daemon_common::{Command, Reply, client};

use super::*;

const PREFIX: &str = "10.98.7.0/24";

async fn ask(path: &Path, query: EventQuery) -> EventPage {
    match client::call(path, &Command::Events(query)).await {
        Ok(Reply::Events(page)) => page,
        other => panic!("{other:?}"),
    }
}

/// Reads events until there are so many.
async fn read(path: &Path, watch: Option<u64>, count: usize) -> Vec<EventRecord> {
    let mut all = Vec::new();
    let mut after = 0;
    while all.len() < count {
        let query = EventQuery {
            watch,
            after: Some(after),
            wait: true,
            ..EventQuery::default()
        };
        let page = ask(path, query).await;
        after = page.next;
        all.extend(page.events);
    }
    all
}

// Promise (Daemons): Events of one route are reported in the order of its changes.
/// One watch is all there are in this process: others would count for it, too.
#[tokio::test]
async fn events_of_a_route_are_in_order() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("control.sock");
    let _control = Control::bind(&path).expect("bound");
    kernel_events::offer();
    let mut host = Host::begun();
    host.announce(PREFIX, true);
    host.announce(PREFIX, false);
    let query = EventQuery {
        prefix: Some(PREFIX.parse().expect("a prefix")),
        wait: true,
        ..EventQuery::default()
    };
    let mut opened = pin!(ask(&path, query));
    let watch = loop {
        tokio::select! {
            page = &mut opened => break page.watch,
            () = tokio::time::sleep(Duration::from_millis(1)) => host.settle(),
        }
    };
    host.settle();
    host.announce(PREFIX, true);
    host.announce(PREFIX, false);
    let mut faults = fib_sync::memory::Faults::default();
    faults.refuse = 1000;
    host.kernel.borrow_mut().set_faults(faults);
    host.announce(PREFIX, true);
    let events = read(&path, watch, 6).await;
    let names: Vec<&str> = events.iter().map(|event| event.event.as_str()).collect();
    assert_eq!(
        names,
        [
            "route.chosen",
            "route.installed",
            "route.withdrawn",
            "route.deleted",
            "route.chosen",
            "route.refused",
        ]
    );
    assert!(events.iter().all(|event| event.fields["prefix"] == PREFIX));
    assert_eq!(events[0].fields["address"], "10.0.0.1");
    assert_eq!(events[1].fields["gateways"], "10.0.0.1");
    assert_eq!(events[3].fields["cause"], "withdrawn");
    assert!(events[5].fields["errno"].as_u64() > Some(0), "{events:?}");
}
