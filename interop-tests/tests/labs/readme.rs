//! Runs the commands of README "On real hosts" literally and in their order, on hosts of a lab.

use std::path::Path;

use interop_tests::{PATIENCE, own};
use netns_lab::fabric::{Fabric, Plan, Shape};
use netns_lab::{Host, Lab, Process, Program, in_lab, within};
use tokio::net::UnixDatagram;

const README: &str = include_str!("../../../README.md");

const SECTION: &str = "\n## On real hosts\n";

/// The prompt of every host.
const EACH: &str = "each";

/// The last line of a text within a command.
const END: &str = "END";

const PROGRAMS: [&str; 4] = [
    "cambric",
    "cambric-bgp-client",
    "cambric-cni",
    "cambric-felix",
];

/// Gives the calling host files of its own: writes to `/etc` and `/var` are discarded, and `/opt`
/// has only the CNI plugin of `$1`.
const PREPARE: &str = r#"
set -eu
for tree in etc var; do
    mkdir -p "$0/$tree" "$0/$tree.work"
    mount -t overlay overlay -o "lowerdir=/$tree,upperdir=$0/$tree,workdir=$0/$tree.work" "/$tree"
done
for tree in /run/calico /run/netns; do
    mkdir -p "$tree"
    mount -t tmpfs tmpfs "$tree"
done
mount -t tmpfs tmpfs /opt
mkdir -p /opt/cni/bin
ln -s "$1/cambric-cni" /opt/cni/bin
"#;

/// A command of the page.
#[derive(Debug, PartialEq, Eq)]
struct Command {
    /// The host of its prompt, or [`EACH`].
    host: String,
    text: String,
}

/// Returns the commands of the section, in their order.
///
/// # Panics
/// If a line of a console block is not part of a command.
fn commands(page: &str) -> Vec<Command> {
    let (_, section) = page.split_once(SECTION).expect("the section is there");
    let section = section.split("\n## ").next().unwrap_or_default();
    let blocks = section.split("```console\n").skip(1);
    let blocks = blocks.map(|rest| rest.split("```").next().unwrap_or_default());
    let mut all = Vec::new();
    for block in blocks {
        let mut lines = block.lines();
        while let Some(line) = lines.next() {
            let (host, first) = line
                .split_once("# ")
                .unwrap_or_else(|| panic!("no prompt: {line}"));
            let mut text = first.to_owned();
            if first.ends_with(&format!("<<{END}")) {
                for line in lines.by_ref() {
                    text.push('\n');
                    text.push_str(line);
                    if line == END {
                        break;
                    }
                }
                assert!(text.ends_with("\nEND"), "no end: {text}");
            }
            all.push(Command {
                host: host.to_owned(),
                text,
            });
        }
    }
    all
}

/// A host, and the shell at its prompt.
struct Shell<'f> {
    host: &'f Host,
    path: String,
    /// The exported variables.
    exports: String,
    daemons: Vec<Process>,
}

impl<'f> Shell<'f> {
    async fn at(host: &'f Host, programs: &Path) -> Self {
        let prepare = Program::new("/bin/sh")
            .args(["-c", PREPARE, "/run/cambric"])
            .arg(programs);
        let (status, _) = host.output(&prepare).await.expect("a shell");
        assert!(status.success(), "{} is made ready", host.name());
        let path = std::env::var("PATH").unwrap_or_default();
        Self {
            host,
            path: format!("{}:/usr/sbin:/sbin:{path}", programs.display()),
            exports: String::new(),
            daemons: Vec::new(),
        }
    }

    async fn run(&mut self, command: &str) {
        match command.strip_suffix(" &") {
            Some(daemon) => self.start(daemon).await,
            None if command.starts_with("export ") => {
                self.exports.push_str(command);
                self.exports.push('\n');
            }
            None => self.finish(command).await,
        }
    }

    fn program(&self, command: &str) -> Program {
        Program::new("/bin/sh")
            .arg("-c")
            .arg(format!("{}{command}", self.exports))
            .env("PATH", &self.path)
    }

    /// Starts a daemon and waits until it is ready, as systemd does.
    async fn start(&mut self, command: &str) {
        let name = format!("daemon{}", self.daemons.len());
        let ready = self.host.directory().join(format!("{name}.ready"));
        let socket = UnixDatagram::bind(ready).expect("a socket");
        let program = self
            .program(&format!("exec {command}"))
            .env("NOTIFY_SOCKET", format!("/run/cambric/{name}.ready"));
        let mut process = self.host.spawn(&name, &program).expect("a daemon");
        let what = format!("{command} is ready on {}", self.host.name());
        let is_ready = within(PATIENCE, &what, async {
            let mut output = [0; 256];
            while let Ok(length) = socket.recv(&mut output).await {
                if output
                    .get(..length)
                    .is_some_and(|output| output.starts_with(b"READY=1"))
                {
                    return;
                }
            }
        });
        if let Err(error) = is_ready.await {
            panic!("{error}: {:?}", process.check());
        }
        self.daemons.push(process);
    }

    async fn finish(&mut self, command: &str) {
        let what = format!("{}# {command}", self.host.name());
        let program = self.program(command);
        let run = within(PATIENCE, &what, self.host.output(&program)).await;
        let (status, output) = run.expect("in time").expect("a shell");
        let output = String::from_utf8_lossy(&output);
        println!("{what}\n{output}");
        if !status.success() {
            for daemon in &self.daemons {
                println!("{}: {}", daemon.name(), daemon.log_tail());
            }
            panic!("{what}: {status}");
        }
    }
}

/// Returns a directory with links to all programs.
fn programs(lab: &Lab) -> std::path::PathBuf {
    let directory = lab.directory().join("programs");
    std::fs::create_dir(&directory).expect("a directory");
    for name in PROGRAMS {
        let link = directory.join(name);
        std::os::unix::fs::symlink(own(name), link).expect("a link");
    }
    directory
}

#[test]
fn commands_of_the_page_end_in_a_ping() {
    let all = commands(README);
    let last_ping = all.iter().rev().find(|one| one.text.contains("ping"));
    assert!(last_ping.is_some(), "{all:?}");
    for Command { host, text } in &all {
        let known = [EACH, "node1", "node2", "node3"].contains(&host.as_str());
        assert!(known, "{host}# {text}");
    }
}

#[test]
fn readme_on_real_hosts_works_as_written() {
    in_lab("readme_on_real_hosts_works_as_written", async |lab| {
        let shape = Shape {
            nodes: 3,
            reflectors: 0,
            workloads_per_node: 0,
            mesh: true,
        };
        let programs = programs(&lab);
        let plan = Plan::new(shape).expect("a plan");
        let fabric = Fabric::build(lab, plan).await.expect("hosts");
        let mut shells = Vec::new();
        for node in &fabric.nodes {
            // A step of the page sets it.
            node.host.sysctl("net/ipv4/ip_forward", "0").expect("set");
            shells.push(Shell::at(&node.host, &programs).await);
        }
        for Command { host, text } in commands(README) {
            for shell in &mut shells {
                if host == EACH || host == shell.host.name() {
                    shell.run(&text).await;
                }
            }
        }
        // The two clients receive each other's routes from the reflector.
        let peers = "cambric show neighbors --json | grep '\"address\"'";
        let program = shells[2].program(peers);
        let (_, output) = fabric.nodes[2].host.output(&program).await.expect("asked");
        let output = String::from_utf8_lossy(&output);
        assert_eq!(output.lines().count(), 1, "{output}");
        assert!(output.contains("10.0.0.11"), "{output}");
    });
}
