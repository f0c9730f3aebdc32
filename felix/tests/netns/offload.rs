//! The offload of connections to the kernel. Needs root and `CAMBRIC_LAB=1`.

use daemon_common::{Command, Reply};
use serde_json::json;

use crate::world::host::{Host, pair};
use crate::world::{lab, run, try_run};

fn notes(host: &Host) -> Vec<String> {
    match host.ask(&Command::Status {}) {
        Reply::Status(status) => status.notes,
        other => panic!("{other:?}"),
    }
}

/// Returns whether the kernel has flowtables.
fn has_flowtables() -> bool {
    run("nft add table inet probe");
    let made = try_run("nft add flowtable inet probe f { hook ingress priority 0 ; }");
    run("nft delete table inet probe");
    made.status.success()
}

// Promise (Felix): Connections are offloaded only as `nftablesFlowTableOffload` requests, and a kernel that
// cannot offload them is reported, and filters all packets.
#[test]
fn connections_are_offloaded_or_the_refusal_is_reported() {
    lab(
        "connections_are_offloaded_or_the_refusal_is_reported",
        || {
            let (host, one, _two) = pair();
            let listed = || {
                let listed = try_run("nft list table inet cambric-felix-offload");
                String::from_utf8_lossy(&listed.stdout).into_owned()
            };
            let refused = || {
                let notes = notes(&host);
                let mut notes = notes.iter();
                notes.any(|note| note.starts_with("nftablesFlowTableOffload is not in effect"))
            };
            assert!(one.namespace.pings("10.65.0.2"));
            host.configure(&json!({"nftablesFlowTableOffload": "All"}));
            match has_flowtables() {
                true => {
                    host.until("the flowtable", || listed().contains("flow add @offloaded"));
                    assert!(listed().contains("cali1") && !refused());
                }
                false => {
                    host.until("the refusal", refused);
                    assert_eq!(listed(), "");
                }
            }
            assert!(one.namespace.pings("10.65.0.2"));
            host.configure(&json!({}));
            host.until("no request", || !refused() && listed().is_empty());
            assert!(one.namespace.pings("10.65.0.2"));
        },
    );
}

#[test]
fn offload_table_of_an_earlier_run_is_removed() {
    lab("offload_table_of_an_earlier_run_is_removed", || {
        run("nft add table inet cambric-felix-offload");
        let (host, one, _two) = pair();
        host.until("its removal", || {
            !run("nft list tables").contains("cambric-felix-offload")
        });
        assert!(one.namespace.pings("10.65.0.2"));
    });
}
