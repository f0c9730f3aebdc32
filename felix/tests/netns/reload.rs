//! Felix reads its file again on SIGHUP. Needs root and `CAMBRIC_LAB=1`.

use crate::world::host::{Host, OPEN, PATIENCE, announce, workload};
use crate::world::process::{Process, served};
use crate::world::{lab, run};
use daemon_common::report::Status;
use daemon_common::{Command, Reply, client};

fn status(host: &Host) -> Status {
    match host.ask(&Command::Status {}) {
        Reply::Status(status) => status,
        other => panic!("{other:?}"),
    }
}

/// Waits until the status has a matching configuration error.
fn wait_error(host: &Host, wished: impl Fn(Option<&str>) -> bool) {
    host.until("the report of the file in the status", || {
        wished(status(host).config_error.as_deref())
    });
}

fn wait_listed(host: &Host, set: &str, element: &str) {
    host.until(element, || {
        run(&format!("nft list set inet cambric-felix {set}")).contains(element)
    });
}

// Promise (Felix): A reload of Felix applies settings without a restart and names the keys that
// need one.
#[test]
fn reload_applies_settings_and_names_the_rest() {
    lab("reload_applies_settings_and_names_the_rest", || {
        let (host, store) = served();
        let _one = workload(1);
        let felix = Process::start(&host, &store, "");
        let begun = std::time::Instant::now();
        while std::os::unix::net::UnixStream::connect(host.socket()).is_err() {
            assert!(begun.elapsed() < PATIENCE, "no control socket");
            std::thread::yield_now();
        }
        announce(&host, 1, OPEN);
        host.wait_up("cali1");
        let route = || run("ip -4 route show proto 80");
        let before = route();
        assert!(before.contains("10.65.0.1 dev cali1"), "{before}");

        // Applied at once, in the same process.
        let exceptions = "control_port_exceptions = [\"10.65.0.7\"]";
        Process::configure(&host, &store, exceptions);
        felix.reload();
        wait_listed(&host, "control-exceptions-ipv4", "10.65.0.7");
        assert_eq!(status(&host).config_error, None);

        // A mistake changes nothing, and is reported with its place.
        let mistake = "control_port_exceptions = [\"10.65.0.8\"]\nmistake = 1";
        Process::configure(&host, &store, mistake);
        felix.reload();
        wait_error(&host, |error| {
            error.is_some_and(|text| text.contains("felix.toml:2:1") && text.contains('^'))
        });
        assert_eq!(status(&host).pid, felix.id());
        let listed = run("nft list set inet cambric-felix control-exceptions-ipv4");
        assert!(!listed.contains("10.65.0.8"), "{listed}");

        // A key that requires a restart is named; the rest of the same file is applied.
        let mixed = "control_port_exceptions = [\"10.65.0.9\"]\nroute_table = 100";
        let wished = "route_table changed: requires a restart";
        for _ in 0..2 {
            Process::configure(&host, &store, mixed);
            felix.reload();
            wait_listed(&host, "control-exceptions-ipv4", "10.65.0.9");
            wait_error(&host, |error| error == Some(wished));
        }
        assert_eq!(route(), before);
        // The command answers with the same error, and with success once there is none.
        let refused = client::call(host.socket(), &Command::Reload {});
        let refused = host.handle().block_on(refused);
        assert_eq!(refused.unwrap_err().to_string(), wished);
        Process::configure(&host, &store, "");
        let applied = host.ask(&Command::Reload {});
        assert!(matches!(applied, Reply::Reload(_)), "{applied:?}");
        assert_eq!(status(&host).config_error, None);

        // Another metric of routes is applied at once.
        Process::configure(&host, &store, "endpoint_metric = 100");
        felix.reload();
        host.until("the metric of the file", || {
            let routes = route();
            routes.contains("metric 100") && !routes.contains("metric 256")
        });
        Process::configure(&host, &store, "");
        felix.reload();
        host.until("the built-in metric", || route() == before);

        // Interfaces with another prefix become workload interfaces at once.
        Process::configure(&host, &store, "interface_prefix = [\"cali\", \"veth\"]");
        felix.reload();
        wait_error(&host, |error| error.is_none());
        let facts = |host: &Host| status(host).facts;
        host.until("the prefix", || {
            let facts = facts(&host);
            facts.iter().any(|fact| fact.value == "cali, veth")
        });
        assert_eq!((route(), status(&host).pid), (before, felix.id()));
    });
}
