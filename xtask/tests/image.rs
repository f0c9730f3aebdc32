//! An image that podman loads from a file and runs, without a registry.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use xtask::image::{Entry, Image, with_libraries};

/// A name that no registry has.
const NAME: &str = "localhost/cambric-test:latest";

/// This repository's own tool is a program like any other.
fn programs() -> BTreeMap<String, PathBuf> {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_xtask"));
    BTreeMap::from([("usr/bin/xtask".to_owned(), program)])
}

fn image() -> Image {
    with_libraries(&programs(), NAME).expect("an image")
}

#[test]
fn image_has_the_libraries_with_licenses_and_no_shell() {
    let image = image();
    let entries = image.entries();
    let names = || entries.keys().map(String::as_str);
    let has = |end: &str| names().any(|name| name.ends_with(end));
    for end in ["/libc.so.6", "/libc6/copyright", "etc/nsswitch.conf"] {
        assert!(has(end), "{end}");
    }
    assert!(names().any(|name| name.contains("ld-linux")), "the loader");
    for shell in ["sh", "bash", "dash", "busybox"] {
        assert!(!has(&format!("/{shell}")), "{shell}");
    }
    // Nothing of this machine but libraries and licenses.
    let files = entries
        .iter()
        .filter(|(_, entry)| matches!(entry, Entry::File(..)));
    for (name, _) in files {
        let is_known = name.contains(".so") || name.contains("/doc/") || name.starts_with("etc/");
        assert!(is_known || name == "usr/bin/xtask", "{name}");
    }
    assert_eq!(
        image.archive().unwrap().digest,
        self::image().archive().unwrap().digest
    );
}

struct Podman<'p> {
    directory: &'p Path,
}

/// Prepares a mount namespace with one hierarchy of cgroups, since crun refuses a mixed one.
const PREPARE: &str = r#"
set -eu
mount -t proc proc /proc
umount -R /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
printf '#!/bin/sh\nexec crun --cgroup-manager=disabled "$@"\n' >"$0/crun"
chmod 755 "$0/crun"
exec podman "$@"
"#;

impl Podman<'_> {
    /// Runs podman with a storage of its own, and containers without cgroups.
    fn run(&self, arguments: &[&str]) -> Output {
        let part = |name: &str| self.directory.join(name).display().to_string();
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "sh", "-c", PREPARE]);
        command.arg(self.directory);
        command.args(["--root", &part("root"), "--runroot", &part("run")]);
        command.args(["--storage-driver", "vfs", "--cgroup-manager", "cgroupfs"]);
        command.args(["--runtime", &part("crun")]);
        command.args(arguments);
        command.output().expect("podman")
    }
}

fn text(output: &Output) -> String {
    let both = [&output.stdout, &output.stderr];
    both.map(|octets| String::from_utf8_lossy(octets).into_owned())
        .concat()
}

#[test]
fn image_runs_under_podman_from_a_file() {
    let is_installed = Command::new("podman").arg("--version").output().is_ok();
    if std::env::var_os("CAMBRIC_LAB").is_none() || !is_installed {
        eprintln!("skipped: needs CAMBRIC_LAB=1 and podman");
        return;
    }
    let directory = std::env::temp_dir().join(format!("cambric-image-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let podman = Podman {
        directory: &directory,
    };
    let file = directory.join("image.tar");
    std::fs::write(&file, image().archive().expect("an archive").octets).expect("written");
    let loaded = podman.run(&["load", "--input", &file.display().to_string()]);
    assert!(loaded.status.success(), "{}", text(&loaded));
    assert!(text(&loaded).contains("cambric-test"), "{}", text(&loaded));
    let arguments = [
        "run",
        "--rm",
        "--network",
        "host",
        "--pull",
        "never",
        "--cgroups",
        "disabled",
        "--ulimit",
        "nofile=1024:1024",
        "--ulimit",
        "nproc=1024:1024",
    ];
    let run = |command: &[&str]| podman.run(&[&arguments[..], &[NAME], command].concat());
    let ran = run(&["/usr/bin/xtask"]);
    assert!(text(&ran).contains("usage: "), "{}", text(&ran));
    let shell = run(&["/bin/sh", "-c", "true"]);
    assert!(!shell.status.success(), "there is a shell");
    assert!(text(&shell).contains("/bin/sh"), "{}", text(&shell));
    podman.run(&["rmi", "--all", "--force"]);
    let _ = std::fs::remove_dir_all(&directory);
}
