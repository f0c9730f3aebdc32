//! Network namespaces for tests: each test thread enters its own namespace and never leaves it.

pub(crate) mod flow;
pub(crate) mod frame;
pub(crate) mod host;
pub(crate) mod packet;
pub(crate) mod process;

use std::os::fd::OwnedFd;
use std::process::{Command, Output};
use std::time::Instant;

use nix::sched::{CloneFlags, setns, unshare};

/// Runs `test` in its own network namespace if `CAMBRIC_LAB=1`, otherwise prints that it is
/// skipped.
pub(crate) fn lab(name: &str, test: impl FnOnce() + Send + 'static) {
    if !netns_lab::allowed(name) {
        return;
    }
    let thread = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace of our own");
        run("ip link set lo up");
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs a command in the thread's namespace; it must succeed. Words are separated by blanks.
pub(crate) fn run(command: &str) -> String {
    let output = try_run(command);
    assert!(
        output.status.success(),
        "{command}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("text")
}

/// Runs a command in the thread's namespace.
pub(crate) fn try_run(command: &str) -> Output {
    let mut words = command.split_whitespace();
    let program = words.next().expect("a command");
    Command::new(program)
        .args(words)
        .output()
        .unwrap_or_else(|error| panic!("{command}: {error}"))
}

/// Writes a setting of the thread's namespace.
pub(crate) fn sysctl(path: &str, value: &str) {
    std::fs::write(format!("/proc/sys/net/{path}"), value)
        .unwrap_or_else(|e| panic!("{path}: {e}"));
}

/// Another network namespace, which exists as long as its handle.
pub(crate) struct Namespace(OwnedFd);

impl Namespace {
    /// Creates a namespace. The thread returns to its previous one.
    pub(crate) fn new() -> Self {
        let home = current();
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
        run("ip link set lo up");
        let new = current();
        setns(home, CloneFlags::CLONE_NEWNET).expect("back home");
        Self(new)
    }

    /// Runs a closure inside.
    pub(crate) fn within<T>(&self, act: impl FnOnce() -> T) -> T {
        let home = current();
        setns(&self.0, CloneFlags::CLONE_NEWNET).expect("into the namespace");
        let result = act();
        setns(home, CloneFlags::CLONE_NEWNET).expect("back home");
        result
    }

    /// Runs a command inside; it must succeed.
    pub(crate) fn run(&self, command: &str) -> String {
        self.within(|| run(command))
    }

    /// Returns whether a ping from inside is answered.
    pub(crate) fn pings(&self, target: &str) -> bool {
        self.within(|| pings(target))
    }

    /// Returns whether no ping from inside is answered for a while.
    pub(crate) fn is_cut_off(&self, target: &str) -> bool {
        self.within(|| is_cut_off(target))
    }

    /// Moves a link of the thread's namespace into this one, under another name.
    pub(crate) fn take(&self, link: &str, name: &str) {
        // `ip` needs a name or a pid for the namespace; a path to the descriptor works as well.
        use std::os::fd::AsRawFd;
        let path = format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd());
        run(&format!("ip link set {link} netns {path} name {name}"));
    }
}

impl Default for Namespace {
    fn default() -> Self {
        Self::new()
    }
}

fn current() -> OwnedFd {
    std::fs::File::open("/proc/thread-self/ns/net")
        .expect("own namespace")
        .into()
}

/// Returns whether a ping from the thread's namespace is answered: it ends with the first answer.
/// It is repeated when `ping` gives up, as it does with the first error that the kernel reports.
pub(crate) fn pings(target: &str) -> bool {
    let deadline = Instant::now() + host::PATIENCE;
    loop {
        let answered = ping(&format!("-w 5 {target}"));
        if answered || Instant::now() >= deadline {
            return answered;
        }
    }
}

/// Returns whether no ping from the thread's namespace is answered for a while.
pub(crate) fn is_cut_off(target: &str) -> bool {
    !ping(&format!("-w 1 {target}"))
}

/// Sends one ping every 200 ms until the first answer.
pub(crate) fn ping(options: &str) -> bool {
    try_run(&format!("ping -n -q -c 1 -i 0.2 {options}"))
        .status
        .success()
}

/// Adds a packet counter with a match in a namespace.
pub(crate) fn count_at(namespace: &Namespace, what: &str) {
    namespace.run("nft add table inet t");
    namespace.run("nft add chain inet t c { type filter hook input priority 0 ; }");
    namespace.run(&format!("nft add rule inet t c {what} counter"));
}

/// Returns the count of that counter.
pub(crate) fn count_of(namespace: &Namespace) -> u64 {
    let listed = namespace.run("nft list chain inet t c");
    let mut words = listed
        .split_whitespace()
        .skip_while(|word| *word != "packets")
        .skip(1);
    words.next().expect("a counter").parse().expect("a number")
}

/// A workload: a namespace with `eth0`, and the other end `interface` on the host.
pub(crate) struct Workload {
    /// The namespace.
    pub(crate) namespace: Namespace,
}

impl Workload {
    /// Connects a workload, as an orchestrator does.
    pub(crate) fn new(interface: &str, mac: &str, ipv4: Option<&str>, ipv6: Option<&str>) -> Self {
        let namespace = Namespace::new();
        run(&format!(
            "ip link add {interface} type veth peer name wl-{interface}"
        ));
        run(&format!("ip link set wl-{interface} address {mac}"));
        namespace.take(&format!("wl-{interface}"), "eth0");
        namespace.within(|| {
            sysctl("ipv6/conf/all/accept_dad", "0");
            run("ip link set eth0 up");
            if let Some(address) = ipv4 {
                run(&format!("ip address add {address}/32 dev eth0"));
                run("ip route add 169.254.1.1 dev eth0 scope link");
                run("ip route add default via 169.254.1.1 dev eth0");
            }
            if let Some(address) = ipv6 {
                run(&format!("ip address add {address}/128 dev eth0 nodad"));
                run("ip -6 route add default via fe80::1 dev eth0");
            }
        });
        run(&format!("ip link set {interface} up"));
        Self { namespace }
    }
}
