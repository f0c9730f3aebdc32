//! Probes of liveness and readiness, against a real kernel. Needs root and `CAMBRIC_LAB=1`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use calico_store::Store;
use calico_store::resources::Resources;
use etcd_lite::Local;
use serde_json::json;

use crate::guard::{DROPPED, NEVER, connects};
use crate::world::host::{Host, OPEN, PATIENCE, announce, workload};
use crate::world::{lab, run};

const ENABLED: &str = "felix_configuration.healthEnabled = true";

/// Returns code and text of an answer; `None` without a connection.
fn probe(at: &str, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(at).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {at}\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let code = head.split(' ').nth(1)?.parse().ok()?;
    Some((code, body.to_owned()))
}

fn readiness() -> (u16, String) {
    probe("127.0.0.1:9099", "/readiness").expect("an answer")
}

fn wait_ready(host: &Host) {
    host.until("ready", || readiness().0 == 200);
}

// Promise (Felix): `/readiness` answers 200 once the kernel has accepted all rules and routes of a
// datastore that was read in full, and 503 with the reason while the kernel refuses one.
#[test]
fn host_is_ready_once_programmed_and_while_nothing_is_refused() {
    lab(
        "host_is_ready_once_programmed_and_while_nothing_is_refused",
        || {
            let mut host = Host::with(async || Arc::new(Local::empty()) as Arc<dyn Store>);
            let _one = workload(1);
            host.settings = ENABLED.into();
            host.start();
            let wait = "listening with the settings of the file";
            host.until(wait, || probe("127.0.0.1:9099", "/liveness").is_some());
            let (code, _) = probe("127.0.0.1:9099", "/liveness").expect("an answer");
            assert_eq!(code, 200, "alive without a datastore");
            // Only the first read of the datastore can show that it is not ready.
            host.until("the reason", || readiness().1.contains("not ready: "));
            let (code, missing) = readiness();
            assert_eq!(code, 503, "{missing}");
            assert!(missing.contains("packet filter"), "{missing}");

            announce(&host, 1, OPEN);
            let ready = Resources::from(Arc::clone(&host.store));
            host.handle().block_on(ready.declare_ready()).unwrap();
            wait_ready(&host);
            assert_eq!(readiness().1, "ready\n");
            let routes = run("ip -4 route show proto 80");
            assert!(routes.contains("10.65.0.1 dev cali1"), "{routes}");

            // Another program holds the place of the next route.
            let _two = workload(2);
            run("ip route add 10.65.0.2/32 dev lo proto 99 metric 256");
            announce(&host, 2, OPEN);
            host.until("not ready", || readiness().0 == 503);
            let (_, refused) = readiness();
            assert!(refused.contains("10.65.0.2"), "{refused}");
            let (code, _) = probe("127.0.0.1:9099", "/liveness").expect("an answer");
            assert_eq!(code, 200, "alive");
            run("ip route delete 10.65.0.2/32 dev lo proto 99 metric 256");
            wait_ready(&host);
            host.wait_up("cali2");
        },
    );
}

#[test]
fn probes_listen_where_the_settings_of_the_store_have_them() {
    lab(
        "probes_listen_where_the_settings_of_the_store_have_them",
        || {
            let host = Host::new();
            let answers = |at: &str| probe(at, "/liveness").is_some();
            assert!(!answers("127.0.0.1:9099"), "off by default");
            host.configure(&json!({"healthEnabled": true, "healthPort": 9100}));
            host.until("the port of the store", || answers("127.0.0.1:9100"));
            assert!(!answers("10.0.0.11:9100"), "only on loopback");
            host.configure(&json!({"healthEnabled": true, "healthHost": "10.0.0.11"}));
            host.until("the address of the store", || answers("10.0.0.11:9099"));
            assert!(!answers("127.0.0.1:9100") && !answers("127.0.0.1:9099"));
            // Taken by another program, and then free.
            let taken = std::net::TcpListener::bind("127.0.0.1:9101").unwrap();
            host.configure(&json!({"healthEnabled": true, "healthPort": 9101}));
            host.until("the note", || {
                crate::guard::notes(&host).contains("127.0.0.1:9101")
            });
            drop(taken);
            host.until("the free port", || answers("127.0.0.1:9101"));
            assert!(!crate::guard::notes(&host).contains("127.0.0.1:9101"));
            host.configure(&json!({"healthEnabled": false}));
            host.until("off", || !answers("127.0.0.1:9101"));
        },
    );
}

// Promise: as felix workload_reaches_no_control_port_of_the_fabric
#[test]
fn workload_reaches_no_probe_unless_it_is_exempt() {
    lab("workload_reaches_no_probe_unless_it_is_exempt", || {
        let mut host = Host::new();
        let (one, two) = (workload(1), workload(2));
        host.stop();
        host.settings = "control_port_exceptions = [\"10.65.0.2\"]".into();
        host.start();
        announce(&host, 1, OPEN);
        announce(&host, 2, OPEN);
        host.configure(&json!({
            "healthEnabled": true, "healthHost": "0.0.0.0",
            "defaultEndpointToHostAction": "Accept",
        }));
        host.wait_up("cali1");
        host.wait_up("cali2");
        host.until("listening", || {
            probe("10.0.0.11:9099", "/liveness").is_some()
        });
        let before = host.counted("control-closed", DROPPED);
        assert!(!connects(&one, "10.0.0.11:9099", NEVER), "it is reached");
        let dropped = host.counted("control-closed", DROPPED);
        assert!(dropped > before, "not by the guard");
        assert!(connects(&two, "10.0.0.11:9099", PATIENCE), "it is exempt");
    });
}
