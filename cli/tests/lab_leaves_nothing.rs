//! `cambric lab demo` killed in the middle, as root: `CAMBRIC_LAB=1 cargo test -p cambric-cli`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use netns_lab::until;

/// A directory with this program, and daemons that do nothing for a long time.
fn programs(directory: &Path) {
    fs::copy(env!("CARGO_BIN_EXE_cambric"), directory.join("cambric"))
        .expect("the program can be copied");
    for daemon in ["bgp-client", "cni", "felix", "route-reflector"] {
        let path = directory.join(format!("cambric-{daemon}"));
        fs::write(&path, "#!/bin/sh\nexec sleep 1000\n").expect("a script is written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
            .expect("a script is made executable");
    }
}

/// Processes in a pid namespace, by its inode.
fn members(namespace: u64) -> Vec<String> {
    let entries = fs::read_dir("/proc")
        .expect("/proc is there")
        .filter_map(Result::ok);
    let here = entries.filter(|entry| {
        let inode = fs::metadata(entry.path().join("ns/pid")).map(|meta| meta.ino());
        inode.is_ok_and(|inode| inode == namespace)
    });
    here.map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

// Promise (Workloads): A lab that is killed leaves nothing behind.
#[test]
fn sigkill_of_a_demo_leaves_no_process_and_no_mount() {
    if !netns_lab::allowed("sigkill_of_a_demo_leaves_no_process_and_no_mount") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    programs(directory.path());
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let mut demo = Command::new(directory.path().join("cambric"))
        .args(["lab", "demo", "--nodes", "2", "--from-files"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    assert!(
        lines.any(|line| line.contains("store ")),
        "the demo got as far as its store"
    );
    let namespace = fs::metadata(format!("/proc/{}/ns/pid_for_children", demo.id()))
        .unwrap()
        .ino();

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let limit = Duration::from_secs(60);
    runtime.block_on(async {
        // Process 1, the store, two reflectors; nodes wait until these listen, which they never do.
        let all = until(limit, "the daemons have been started", async || {
            let members = members(namespace);
            Ok::<_, netns_lab::Error>(if members.len() >= 4 {
                Ok(())
            } else {
                Err(members.join(" "))
            })
        });
        all.await.unwrap();
        demo.kill().unwrap();
        demo.wait().unwrap();
        let none = until(limit, "all are gone", async || {
            let members = members(namespace);
            Ok::<_, netns_lab::Error>(if members.is_empty() {
                Ok(())
            } else {
                Err(members.join(" "))
            })
        });
        none.await.unwrap();
    });
    assert_eq!(fs::read_to_string("/proc/mounts").unwrap(), mounts);
}
