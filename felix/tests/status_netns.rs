//! What Felix tells of endpoints, with a real kernel below it. Needs root and `CAMBRIC_LAB=1`.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod netns;

use model::EndpointFile;
use netns::host::{Host, OPEN, announce, key, mac, workload};
use netns::{lab, run};
use serde_json::json;

const UP: &str = EndpointFile::UP;
const ERROR: &str = EndpointFile::ERROR;

#[test]
fn plugins_find_a_file_while_an_endpoint_is_up() {
    lab("plugins_find_a_file_while_an_endpoint_is_up", || {
        let mut host = Host::new();
        let _one = workload(1);
        announce(&host, 1, OPEN);
        host.until("a file", || host.file(UP, "w1").is_some());
        // It is there only once all else is.
        let routes = run("ip route show proto 80") + &run("ip -6 route show proto 80");
        assert!(routes.contains("10.65.0.1 dev cali1"), "{routes}");
        assert!(routes.contains("fd65::1 dev cali1"), "{routes}");
        let rules = run("nft list table inet cambric-felix");
        assert!(rules.contains("\"cali1\" . 10.65.0.1"), "{rules}");
        let told = json!({
            "ifaceName": "cali1", "mac": mac(1),
            "ipv4Nets": ["10.65.0.1/32"], "ipv6Nets": ["fd65::1/128"],
        });
        assert_eq!(host.file(UP, "w1"), Some(told));

        run("ip link set cali1 down");
        host.until("no file", || host.file(UP, "w1").is_none());
        run("ip link set cali1 up");
        host.until("a file again", || host.file(UP, "w1").is_some());

        // One that is refused has its reason elsewhere.
        host.endpoint("w2", "eth7", None, &["10.65.0.2/32"], OPEN);
        host.until("a reason", || host.file(ERROR, "w2").is_some());
        let refused = host.file(ERROR, "w2").unwrap();
        let reason = refused["reason"].as_str().unwrap();
        assert!(reason.contains("eth7 does not begin"), "{reason}");
        assert_eq!(host.file(UP, "w2"), None);

        // Files outlive the program; those of endpoints that went meanwhile do not outlive its start.
        host.stop();
        assert!(host.file(UP, "w1").is_some());
        host.delete(&key("w1"));
        host.start();
        host.until("no file", || host.file(UP, "w1").is_none());
        host.delete(&key("w2"));
        host.until("no reason", || host.file(ERROR, "w2").is_none());
    });
}
