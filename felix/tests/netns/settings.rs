//! Intervals of checks, on real interfaces. Needs root and `CAMBRIC_LAB=1`.

use serde_json::json;

use crate::world::host::pair;
use crate::world::{lab, run, sysctl};

const SETTING: &str = "ipv4/conf/cali1/proxy_arp";

// Promise (Felix): A changed setting of an interface is restored within
// `interfaceRefreshInterval`.
#[test]
fn interface_settings_are_restored_in_the_interval() {
    lab("interface_settings_are_restored_in_the_interval", || {
        let (host, _one, _two) = pair();
        let is_set = || run(&format!("cat /proc/sys/net/{SETTING}")).trim() == "1";
        host.configure(&json!({"interfaceRefreshInterval": "1s"}));
        for _ in 0..2 {
            host.until("the setting", is_set);
            sysctl(SETTING, "0");
            // By default, this would take longer than the test waits.
            host.until("the setting again", is_set);
        }
    });
}
