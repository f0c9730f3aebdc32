//! Tables that belong to Felix. Needs root and `CAMBRIC_LAB=1`, and Linux 6.9.

use serde_json::json;

use crate::guard::notes;
use crate::world::host::{Host, workload};
use crate::world::{Workload, lab, run, try_run};

const DELETE: [&str; 2] = [
    "nft delete table inet cambric-felix",
    "nft delete table arp cambric-felix",
];

/// Creates a host with two open workloads.
fn pair() -> (Host, Workload, Workload) {
    let host = Host::new();
    let both = (workload(1), workload(2));
    for n in 1..=2 {
        host.endpoint_with(n, &json!({}), &json!({}));
        host.wait_up(&format!("cali{n}"));
    }
    (host, both.0, both.1)
}

fn restart(host: &mut Host, settings: &str) {
    host.stop();
    host.settings = settings.into();
    host.start();
    host.wait_up("cali1");
    host.wait_up("cali2");
}

/// Returns the handle of the table.
fn handle() -> String {
    let listed = run("nft -a list table inet cambric-felix");
    let mut words = listed
        .split_whitespace()
        .skip_while(|word| *word != "handle");
    words.nth(1).expect("a handle").to_owned()
}

fn is_refused(command: &str) -> bool {
    let output = try_run(command);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    !output.status.success() && text.contains("Operation not permitted")
}

/// Returns whether the tables are the daemon's own.
fn is_owned() -> bool {
    DELETE.iter().all(|command| is_refused(command))
}

// Promise (Felix): With `own_tables`, no other program changes or flushes the packet filter of a running
// Felix, and the next run takes it over.
#[test]
fn owned_tables_are_changed_by_felix_alone() {
    lab("owned_tables_are_changed_by_felix_alone", || {
        let (mut host, one, _two) = pair();
        let unowned = handle();
        restart(&mut host, "own_tables = true");
        assert_ne!(handle(), unowned, "the table is a new one");
        assert!(is_owned());
        assert!(is_refused("nft add rule inet cambric-felix forward accept"));
        assert!(is_refused(
            "nft flush chain inet cambric-felix dispatch-from"
        ));
        // A flush removes the tables of others.
        run("nft add table inet other");
        let before = handle();
        run("nft flush ruleset");
        assert!(!try_run("nft list table inet other").status.success());
        assert_eq!(handle(), before);
        assert!(run("nft list tables").contains("table arp cambric-felix"));
        assert!(one.namespace.pings("10.65.0.2"));
        assert!(!notes(&host).contains("own_tables"), "{}", notes(&host));
        // Felix still changes them.
        let third = workload(3);
        host.endpoint_with(3, &json!({}), &json!({}));
        host.wait_up("cali3");
        assert!(third.namespace.pings("10.65.0.1"));

        // They outlive the daemon, and the next one owns the same.
        host.stop();
        assert_eq!(handle(), before);
        assert!(one.namespace.pings("10.65.0.2"));
        host.start();
        host.wait_up("cali1");
        host.until("owned again", is_owned);
        assert_eq!(handle(), before, "the table was kept");
        // Without a running Felix, an operator can remove them.
        host.stop();
        DELETE.iter().for_each(|command| drop(run(command)));
    });
}

#[test]
fn owned_tables_end_with_the_key() {
    lab("owned_tables_end_with_the_key", || {
        let (mut host, one, _two) = pair();
        restart(&mut host, "own_tables = true");
        assert!(is_owned());
        let owned = handle();
        restart(&mut host, "");
        host.until("a new table", || handle() != owned);
        assert!(one.namespace.pings("10.65.0.2"));
        // Another program deletes it, and it is written again.
        DELETE.iter().for_each(|command| drop(run(command)));
        host.until("a table again", || {
            try_run("nft list table inet cambric-felix")
                .status
                .success()
        });
        assert!(one.namespace.pings("10.65.0.2"));
    });
}
