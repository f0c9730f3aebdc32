//! Calico's DHCP agent with dnsmasq on a compute host, and a machine that is its client.

use std::path::PathBuf;

use interop_tests::{Site, foreign};
use netns_lab::{Host, Process, Program};

use crate::cloud::{Cloud, PYTHON, driver_configuration, eventually};
use crate::compute::{Compute, Port};

/// Prepares the host, in its own mount namespace: a `/proc` of the agent's pid namespace, and a
/// directory for its log.
const AGENT: &str = "set -eu
export PATH=\"$PATH:/usr/sbin\"
mount -t proc proc /proc
mount -t tmpfs tmpfs /var/log
exec \"$@\"";

/// Applies a received lease on a machine (dhclient-script(8)).
const SCRIPT: &str = r#"#!/bin/sh
set -eu
cd /run/cambric
case $reason in
BOUND)
    ip address add "$new_ip_address/$new_subnet_mask" dev "$interface"
    ip route add default via "$new_routers"
    echo "$new_ip_address $new_routers $new_domain_name_servers" >heard.new
    mv heard.new heard-4
    ;;
BOUND6)
    ip address add "$new_ip6_address/$new_ip6_prefixlen" dev "$interface"
    echo "$new_ip6_address" >heard6.new
    mv heard6.new heard-6
    ;;
esac
"#;

/// An unanswered client retries soon (dhclient.conf(5)).
const CLIENT: &str = "timeout 600;\ninitial-interval 1;\nbackoff-cutoff 2;\n";

/// The agent, and the path of its dnsmasq's log.
pub(crate) struct Agent(Process, PathBuf);

impl Drop for Agent {
    /// Prints dnsmasq's log if the test fails.
    fn drop(&mut self) {
        let logs = std::fs::read_dir(&self.1).into_iter().flatten().flatten();
        for log in logs.filter(|_| std::thread::panicking()) {
            let text = std::fs::read_to_string(log.path().join("dhcp_dns_log"));
            println!("{}", text.unwrap_or_default());
        }
    }
}

impl Agent {
    /// Starts the agent. Returns `None`, with a notice, where a program that it needs is not
    /// installed.
    pub(crate) fn start(cloud: &Cloud, at: &Compute) -> Option<Self> {
        for program in ["dnsmasq", "dhclient"] {
            foreign(program)?;
        }
        let site = &at.site;
        let configuration = format!(
            "[DEFAULT]
host = h{}
transport_url = fake:/
state_path = /run/cambric
dnsmasq_config_file = /run/cambric/dnsmasq.conf
dnsmasq_base_log_dir = /run/cambric/dnsmasq
[AGENT]
root_helper =
[oslo_concurrency]
lock_path = /run/cambric/locks
{}",
            site.number,
            driver_configuration()
        );
        site.save("agent.conf", &configuration);
        site.save("agent.py", include_str!("agent.py"));
        site.save("ported.py", include_str!("ported.py"));
        // Its files are in a directory that belongs to root.
        site.save("dnsmasq.conf", "user=root\n");
        std::fs::create_dir(site.host.directory().join("locks")).expect("made");
        let program = Program::new("/bin/sh")
            .args(["-c", AGENT, "sh", PYTHON, "-B", "/run/cambric/agent.py"])
            .args(["--config-file", "/run/cambric/agent.conf"])
            .env("PYTHONPATH", &cloud.driver);
        let agent = site.host.spawn("dhcp-agent", &program);
        let logs = site.host.directory().join("dnsmasq");
        Some(Self(agent.expect("an agent"), logs))
    }

    /// Asserts that the machine of a new port on its host obtains its addresses and its default
    /// route by DHCP, and reaches another machine with them. Then the agent ends: it changes links
    /// of the host whenever it reads the datastore again.
    pub(crate) async fn serves(
        self,
        cloud: &Cloud,
        at: &Compute,
        mut port: Port,
        other: &Port,
    ) -> Port {
        let machine = port.machine(cloud, at).await;
        std::fs::write(machine.directory().join("client.conf"), CLIENT).expect("written");
        std::fs::write(machine.directory().join("heard.sh"), SCRIPT).expect("written");
        cloud.port_is(&port.id, "ACTIVE").await;
        let _clients = ["-4", "-6"].map(|family| client(&machine, family));
        let server = Site::v4(254);
        let v4 = format!("{} 10.65.0.1 {server}\n", port.address);
        let v6 = format!("{}\n", port.address_v6);
        for (family, expected) in [("-4", v4), ("-6", v6)] {
            let path = machine.directory().join(format!("heard{family}"));
            let what = format!("an answer to DHCP {family}");
            let received = eventually(&what, async || {
                std::fs::read_to_string(&path)
                    .map_err(|error| format!("{error}: {}", self.0.log_tail()))
            });
            assert_eq!(received.await, expected);
        }
        port.runs(machine);
        port.reaches(other).await;
        other.reaches(&port).await;
        port
    }
}

/// Starts a DHCP client on the machine's interface.
fn client(machine: &Host, family: &str) -> Process {
    const SCRIPT: &str = "export PATH=\"$PATH:/usr/sbin\"
chmod 755 /run/cambric/heard.sh
exec dhclient -d -1 -cf /run/cambric/client.conf -sf /run/cambric/heard.sh \
    -pf \"/run/cambric/pid$0\" -lf \"/run/cambric/leases$0\" \"$0\" eth0";
    let program = Program::new("/bin/sh").args(["-c", SCRIPT, family]);
    let client = machine.spawn(&format!("dhclient{family}"), &program);
    client.expect("a client")
}
