//! Container runtimes on a host of a lab: podman and containerd, with containers whose root file
//! system consists of the machine's own programs.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use interop_tests::{PATIENCE, foreign, own};
use netns_lab::{Process, Program};
use serde_json::{Value, json};

use crate::host::Node;

/// Directory of a host for the files of its runtime; on a file system of its own.
const DIRECTORY: &str = "/run/cambric/runtime";

/// Prepares the calling host for a runtime, in its own mount namespace: writable `/etc` and `/var`
/// that are discarded, plugins in `/opt/cni/bin`, one cgroup hierarchy (not used: containers run
/// without cgroups), and a `/proc` of its own pid namespace.
const PREPARE: &str = r#"
set -eu
mount -t proc proc /proc
umount -R /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
cd "$0"
for tree in etc var; do
    mkdir -p "$tree" "$tree.work"
    mount -t overlay overlay -o "lowerdir=/$tree,upperdir=$0/$tree,workdir=$0/$tree.work" "/$tree"
done
mount -t tmpfs opt /opt
mkdir -p /opt/cni/bin /etc/cni/net.d
rm -f /etc/cni/net.d/*
ln -s /usr/lib/cni/* "$1"/cambric-cni "$1"/cambric-ipam /opt/cni/bin
cp network.conflist /etc/cni/net.d/10-fabric.conflist
mkdir -p home root/usr root/proc root/sys root/dev root/etc root/run root/tmp
for link in bin sbin lib lib64; do ln -s "usr/$link" "root/$link"; done
printf '#!/bin/sh\nexec crun --cgroup-manager=disabled "$@"\n' >crun
chmod 755 crun
"#;

const PODMAN: &str = r#"
[network]
network_backend = "cni"
cni_plugin_dirs = ["/opt/cni/bin"]
network_config_dir = "/etc/cni/net.d"
default_network = "fabric"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
runtime = "crun"
"#;

const CONTAINERD: &str = r#"
version = 2
root = "/run/cambric/runtime/lib"
state = "/run/cambric/runtime/run"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt"]
[grpc]
address = "/run/cambric/runtime/containerd.sock"
"#;

/// Returns whether the runtimes are installed.
pub(crate) fn are_installed() -> bool {
    ["podman", "containerd", "ctr", "crun", "iptables", "ping"]
        .iter()
        .all(|name| foreign(name).is_some())
}

impl Node {
    /// Prepares the host for a runtime, with this network.
    pub(crate) async fn prepare(&self, network: &Value) {
        let directory = self.site.host.directory().join("runtime");
        std::fs::create_dir_all(&directory).unwrap();
        let mut own_part = network.clone();
        let part = own_part.as_object_mut().unwrap();
        part.remove("name");
        part.remove("cniVersion");
        // The two reference plugins that most distributions include.
        let rate = 1_000_000_000;
        let plugins = json!({
            "cniVersion": "1.0.0", "name": network["name"],
            "plugins": [
                own_part,
                {"type": "portmap", "capabilities": {"portMappings": true}, "snat": false},
                {"type": "bandwidth", "ingressRate": rate, "ingressBurst": rate, "egressRate": rate, "egressBurst": rate},
            ],
        });
        for (name, text) in [
            ("network.conflist", plugins.to_string().as_str()),
            ("containers.conf", PODMAN),
            ("containerd.toml", CONTAINERD),
        ] {
            std::fs::write(directory.join(name), text).unwrap();
        }
        let programs = own("cambric-cni").parent().unwrap().to_owned();
        let prepare = Program::new("/bin/sh")
            .args(["-c", PREPARE, DIRECTORY])
            .arg(programs);
        let (status, _) = self.site.host.output(&prepare).await.unwrap();
        assert!(status.success(), "the host is made ready");
    }

    fn podman(&self, arguments: &[&str]) -> Program {
        Program::new("podman")
            .args([
                "--root",
                "/run/cambric/runtime/storage",
                "--runroot",
                "/run/cambric/runtime/state",
            ])
            .args(["--storage-driver", "vfs"])
            .args(arguments)
            .env("CONTAINERS_CONF", format!("{DIRECTORY}/containers.conf"))
            .env("HOME", format!("{DIRECTORY}/home"))
            .env("XDG_RUNTIME_DIR", format!("{DIRECTORY}/home"))
    }

    /// Runs `podman run` with these options and this command.
    pub(crate) async fn podman_run(&self, options: &[&str], command: &[&str]) {
        let all = [
            &[
                "run",
                "--cgroups=disabled",
                "--ulimit",
                "nofile=1024:1024",
                "--ulimit",
                "nproc=1024:1024",
            ],
            &["--network", "fabric", "-v", "/usr:/usr:ro"][..],
            options,
            &["--rootfs", "/run/cambric/runtime/root"],
            command,
        ];
        self.must(&self.podman(&all.concat())).await;
    }

    /// Removes a container of podman.
    pub(crate) async fn podman_remove(&self, name: &str) {
        self.must(&self.podman(&["rm", "-f", "-t", "0", name]))
            .await;
    }

    /// Starts containerd, and waits until it answers.
    pub(crate) async fn start_containerd(&self) -> Process {
        let config = format!("{DIRECTORY}/containerd.toml");
        let program = Program::new("containerd").args(["--config", &config]);
        let process = self.site.host.spawn("containerd", &program).unwrap();
        netns_lab::until::<(), netns_lab::Error>(PATIENCE, "containerd answers", async || {
            let (status, _) = self.site.host.output(&self.ctr(&["version"])).await?;
            Ok(status.success().then_some(()).ok_or_else(String::new))
        })
        .await
        .unwrap();
        process
    }

    fn ctr(&self, arguments: &[&str]) -> Program {
        Program::new("ctr")
            .args(["-a", "/run/cambric/runtime/containerd.sock"])
            .args(arguments)
    }

    fn ctr_run(&self, id: &str, command: &[&str]) -> Program {
        let options = [
            "run",
            "--rm",
            "--cni",
            "--runc-binary",
            "/run/cambric/runtime/crun",
            "--mount",
            "type=bind,src=/usr,dst=/usr,options=rbind:ro",
            "--rootfs",
            "/run/cambric/runtime/root",
            id,
        ];
        self.ctr(&[&options, command].concat())
    }

    /// Runs a container with containerd until it ends.
    pub(crate) async fn ctr_to_end(&self, id: &str, command: &[&str]) {
        self.must(&self.ctr_run(id, command)).await;
    }

    /// Runs a container with containerd until it is killed.
    pub(crate) fn ctr_spawn(&self, id: &str, command: &[&str]) -> Process {
        self.site
            .host
            .spawn(id, &self.ctr_run(id, command))
            .unwrap()
    }

    /// Kills it, and waits until its network is removed, too.
    pub(crate) async fn ctr_kill(&self, id: &str, mut process: Process) {
        self.must(&self.ctr(&["task", "kill", "-s", "SIGKILL", id]))
            .await;
        process.wait(PATIENCE).await.unwrap();
    }

    /// Runs a program to its end and asserts that it succeeds.
    async fn must(&self, program: &Program) {
        // Its standard error has the cause of a failure.
        let mut process = self.site.host.spawn("runtime", program).unwrap();
        let status = process.wait(2 * PATIENCE).await.unwrap();
        assert!(status.success(), "{program:?}: {}", process.log_tail());
    }
}
