//! The privileges that the running program gives up, and its work without them.

use daemon_common::report::PrivilegeFigures;
use nix::sys::signal::Signal;

use super::*;

fn figures(status: &Status) -> PrivilegeFigures {
    let figures = status.privileges.clone();
    *figures.expect("a reflector reports its privileges")
}

/// Starts a reflector with further keys, in network and user namespaces of its own: it is root there,
/// whoever runs the test. `None` if this machine does not allow it.
async fn in_namespaces(keys: &str) -> Option<Reflector> {
    let namespaces = ["-Urn", "--"];
    let possible = Process::new("unshare")
        .args(namespaces)
        .arg("true")
        .status();
    if !possible.is_ok_and(|status| status.success()) {
        println!("skipped: no namespaces");
        return None;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let config = directory.path().join("rr.toml");
    write(&directory.path().join("rr.sock"), &config, keys);
    let mut process = Process::new("unshare");
    let up = "ip link set lo up && exec \"$0\" --config \"$1\"";
    process.args(namespaces).args(["sh", "-c", up, PROGRAM]);
    process.arg(&config).stdout(Stdio::null());
    let process = process.spawn().expect("the program starts");
    let reflector = Reflector { process, directory };
    reflector.until("it answers", |_| true).await;
    Some(reflector)
}

fn write(control: &Path, config: &Path, keys: &str) {
    let keys = format!("control = {control:?}\nasn = 64512\nrouter_id = \"10.0.0.1\"\n{keys}");
    replace(config, &keys);
}

/// As an editor does: a new file in place of the old one.
fn replace(config: &Path, text: &str) {
    let new = config.with_extension("new");
    std::fs::write(&new, text).expect("written");
    std::fs::rename(&new, config).expect("replaced");
}

impl Reflector {
    fn reload(&self, keys: &str) {
        write(&self.directory.path().join("rr.sock"), &self.config(), keys);
        self.signal(Signal::SIGHUP);
    }
}

const PORT_179: &str = "listen = [\"0.0.0.0:179\"]\n";

// Promise (Route reflectors): A reflector parses BGP without a capability, whatever has started it.
/// Started by root of its namespaces, it holds nothing, and its parent opens the port of BGP; it reads
/// a new configuration.
#[tokio::test]
async fn reflector_of_root_holds_no_capability_and_reloads() {
    let Some(reflector) = in_namespaces(PORT_179).await else {
        return;
    };
    let status = reflector.until("it is confined", |_| true).await;
    let held = figures(&status);
    assert_eq!(held.capabilities, [""; 0], "{held:?}");
    assert!(
        held.confined && held.no_new_privs && held.seccomp,
        "{held:?}"
    );
    let landlock = status
        .notes
        .iter()
        .any(|note| note.contains("landlock is not in effect"));
    assert!(
        held.landlock_abi.is_some() != landlock,
        "{:?}",
        status.notes
    );
    let of_root = "privileges: the daemon runs as root";
    let is_noted = status.notes.iter().any(|note| note.starts_with(of_root));
    assert!(is_noted, "{:?}", status.notes);
    // The record of the host guard, if this machine has one, is complete.
    let incomplete = reflector.directory.path().join("rr.guard-new");
    assert!(!incomplete.exists(), "{:?}", status.notes);
    assert_eq!(reflector.address().await, ([0, 0, 0, 0], 179).into());

    let named = "[[neighbor]]\nname = \"rr2\"\naddress = \"10.0.0.2\"\nasn = 64512\n";
    reflector.reload(&format!("{PORT_179}{named}"));
    let sessions = |status: &Status| {
        let mut facts = status.facts.iter();
        facts.any(|fact| fact.name == "sessions up" && fact.value == "0 of 1")
    };
    reflector.until("it has another neighbor", sessions).await;

    // Its parent binds a further privileged port, once the file names it.
    reflector.reload("listen = [\"0.0.0.0:179\", \"0.0.0.0:180\"]\n");
    let listens = |port: &'static str| {
        move |status: &Status| {
            let mut facts = status.facts.iter();
            facts.any(|fact| fact.name == "listening" && fact.value.contains(port))
        }
    };
    let status = reflector.until("it listens on it", listens(":180")).await;
    assert_eq!(status.config_error, None);
    assert_eq!(figures(&status).capabilities, [""; 0]);
    reflector.reload("listen = [\"0.0.0.0:179\", \"0.0.0.0:1790\"]\n");
    let status = reflector
        .until("it listens on another port", listens(":1790"))
        .await;
    assert_eq!(status.config_error, None);
}

/// The daemon cannot read a file of another directory than those of its start.
#[tokio::test]
async fn file_elsewhere_is_rejected_until_a_restart() {
    let Some(reflector) = in_namespaces(PORT_179).await else {
        return;
    };
    let status = reflector.until("it is confined", |_| true).await;
    if figures(&status).landlock_abi.is_none() {
        println!("skipped: no landlock");
        return;
    }
    let elsewhere = tempfile::tempdir().expect("a directory");
    let password = elsewhere.path().join("password");
    std::fs::write(&password, "a password").expect("written");
    let control = reflector.directory.path().join("rr.sock");
    let text = format!(
        "control = {control:?}\nhostname = \"rr\"\n[datastore]\nendpoints = [\"http://127.0.0.1:2379\"]\nusername = \"rr\"\n\
         password_file = {password:?}\n"
    );
    let named = password.to_str().expect("plain");
    replace(&reflector.config(), &text);
    reflector.signal(Signal::SIGHUP);
    let refused = |status: &Status| {
        let error = status.config_error.clone().unwrap_or_default();
        error.contains(named) && error.contains("requires restart")
    };
    reflector
        .until("it names the file and the remedy", refused)
        .await;
    // `--check` reads the file with the rights of its caller, a reload with those of the daemon.
    let (passed, output) = outcome(&reflector.config(), &["--check"]);
    assert!(passed, "{output}");
    let (passed, output) = outcome(&reflector.config(), &["--reload"]);
    assert!(!passed && output.contains(named), "{output}");
    assert!(output.contains("requires restart"), "{output}");
}

/// A reload by the command line has an effect when it ends, also on the bounds of the parent.
#[tokio::test]
async fn reload_that_ends_with_success_is_in_effect() {
    let Some(reflector) = in_namespaces(PORT_179).await else {
        return;
    };
    let control = reflector.directory.path().join("rr.sock");
    let listens = async |port: &str| {
        let status = reflector.until("it answers", |_| true).await;
        let mut facts = status.facts.iter();
        facts.any(|fact| fact.name == "listening" && fact.value.contains(port))
    };
    let reload = |keys: &str| {
        write(&control, &reflector.config(), keys);
        outcome(&reflector.config(), &["--reload"])
    };
    let (passed, output) = reload("listen = [\"0.0.0.0:179\", \"0.0.0.0:180\"]\n");
    assert!(passed && output.contains("in effect"), "{output}");
    assert!(listens(":180").await);

    let (passed, output) = reload(&format!("{PORT_179}hold_tiem = 9\n"));
    assert!(!passed && output.contains("hold_tiem"), "{output}");
    assert!(listens(":180").await, "the last valid file is in effect");

    // The rest of the file is applied.
    let (passed, output) = reload(&format!("{PORT_179}log_format = \"json\"\n"));
    let key = "log_format changed: requires a restart";
    assert!(!passed && output.contains(key), "{output}");
    assert!(!listens(":180").await);

    let other = reflector.directory.path().join("other.sock");
    write(&other, &reflector.config(), PORT_179);
    let (passed, output) = outcome(&reflector.config(), &["--reload"]);
    assert!(!passed && output.contains("other.sock"), "{output}");
    assert!(output.contains("if `control` has changed"), "{output}");
}

/// The parent holds two capabilities, and starts the reflector again if it is killed.
#[tokio::test]
async fn killed_parser_is_started_again_by_its_parent() {
    let Some(reflector) = in_namespaces(PORT_179).await else {
        return;
    };
    let status = reflector.until("it is confined", |_| true).await;
    let parent = figures(&status).parent.expect("it has a parent");
    assert_eq!(
        parent.capabilities,
        ["CAP_NET_ADMIN", "CAP_NET_BIND_SERVICE"]
    );
    assert_eq!(parent.restarts, 0);
    assert_ne!(parent.pid, status.pid);
    assert!(parent.seccomp, "{parent:?}");
    assert_eq!(parent.landlock_abi, figures(&status).landlock_abi);
    let lines = std::fs::read_to_string(format!("/proc/{}/status", parent.pid));
    let lines = lines.expect("readable");
    assert!(lines.contains("Seccomp:\t2\n"), "{lines}");
    signal_parser(&reflector, &status, Signal::SIGKILL);
    let again = |new: &Status| new.pid != status.pid;
    let status = reflector.until("it runs again", again).await;
    let figures = figures(&status);
    assert_eq!(figures.capabilities, [""; 0], "{figures:?}");
    let after = figures.parent.expect("it has a parent");
    assert_eq!((after.pid, after.restarts), (parent.pid, 1));
    assert_eq!(after.last, "SIGKILL");
    let mut notes = status.notes.iter();
    assert!(
        notes.any(|note| note.contains("restarted after a crash")),
        "{notes:?}"
    );
    assert_eq!(reflector.address().await, ([0, 0, 0, 0], 179).into());
}

/// Only a signal to the parent stops the daemon: systemd would not start it again.
#[tokio::test]
async fn parser_that_ends_with_success_is_started_again() {
    let Some(reflector) = in_namespaces(PORT_179).await else {
        return;
    };
    let status = reflector.until("it is confined", |_| true).await;
    signal_parser(&reflector, &status, Signal::SIGTERM);
    let again = |new: &Status| new.pid != status.pid;
    let status = reflector.until("it runs again", again).await;
    let parent = figures(&status).parent.expect("it has a parent");
    assert_eq!((parent.restarts, &*parent.last), (1, "exit status: 0"));
}

/// Nothing of a daemon stays when its parent is killed.
#[tokio::test]
async fn killed_parent_ends_its_parser() {
    let Some(mut reflector) = in_namespaces(PORT_179).await else {
        return;
    };
    let status = reflector.until("it is confined", |_| true).await;
    reflector.signal(Signal::SIGKILL);
    reflector.process.wait().expect("it has ended");
    let gone = async {
        while Path::new(&format!("/proc/{}", status.pid)).exists() {
            tokio::task::yield_now().await;
        }
    };
    timeout(DEADLINE, gone).await.expect("the parser ends, too");
}

/// A signal to the parent is one to the daemon, and its exit code is the daemon's.
#[tokio::test]
async fn stopped_parser_ends_its_parent_with_its_code() {
    let Some(mut reflector) = in_namespaces(PORT_179).await else {
        return;
    };
    reflector.signal(Signal::SIGTERM);
    let status = reflector.process.wait().expect("it ends");
    assert!(status.success(), "{status}");
}

fn signal_parser(reflector: &Reflector, status: &Status, signal: Signal) {
    // It is the only child of the process that was started.
    let parent = reflector.process.id();
    let children = format!("/proc/{parent}/task/{parent}/children");
    let children = std::fs::read_to_string(children).expect("readable");
    let parser = i32::try_from(status.pid).expect("a pid");
    assert_eq!(children.trim(), parser.to_string());
    let parser = nix::unistd::Pid::from_raw(parser);
    nix::sys::signal::kill(parser, signal).expect("signaled");
}

#[tokio::test]
async fn kept_privileges_are_reported() {
    let Some(reflector) = in_namespaces("privileges = \"keep\"\nlisten = []\n").await else {
        return;
    };
    let status = reflector.until("it answers", |_| true).await;
    let held = figures(&status);
    assert!(!held.confined && !held.seccomp, "{held:?}");
    assert!(held.capabilities.len() > 10, "{held:?}");
    let fact = status.facts.iter().find(|fact| fact.name == "privileges");
    let value = &fact.expect("a fact").value;
    assert!(value.starts_with("kept, by the configuration"), "{value}");
}

/// The parent's writable directories are those of its start, and its parsers have no others: systemd
/// then starts both with the new file.
#[tokio::test]
async fn control_socket_elsewhere_ends_the_daemon_after_a_crash() {
    let Some(mut reflector) = in_namespaces(PORT_179).await else {
        return;
    };
    let status = reflector.until("it is confined", |_| true).await;
    if figures(&status).landlock_abi.is_none() {
        println!("skipped: no landlock");
        return;
    }
    let elsewhere = tempfile::tempdir().expect("a directory");
    let control = elsewhere.path().join("rr.sock");
    write(&control, &reflector.config(), PORT_179);
    signal_parser(&reflector, &status, Signal::SIGKILL);
    let ended = reflector.process.wait().expect("it ends");
    assert_eq!(ended.code(), Some(1));
    assert!(!control.exists());
}
