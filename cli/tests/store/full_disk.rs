//! `cambric store serve` on a disk that becomes full, as root: `CAMBRIC_LAB=1`. The disk is a small
//! tmpfs in a mount namespace of its own.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use calico_store::{
    Error, EtcdOptions, EtcdStore, KeyRange, LeaseId, Revision, Store, WatchRequest,
};

use super::{Program, address};

/// Octets of the disk; the store holds back a part of them.
const DISK: &str = "size=24m";

const PATIENCE: Duration = Duration::from_secs(120);

/// A disk. Its namespace ends with the process that keeps it.
struct Disk {
    keeper: Program,
    directory: tempfile::TempDir,
}

impl Disk {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let script = "mount -t tmpfs -o \"$1\" disk \"$2\" && echo mounted && exec sleep infinity";
        let keeper = Command::new("unshare")
            .args([
                "--mount",
                "--propagation",
                "private",
                "sh",
                "-c",
                script,
                "sh",
            ])
            .arg(DISK)
            .arg(directory.path())
            .stdout(Stdio::piped())
            .spawn();
        let mut keeper = Program(keeper.expect("unshare starts"));
        let mut line = String::new();
        let output = keeper.0.stdout.take().expect("piped");
        BufReader::new(output).read_line(&mut line).expect("a line");
        assert_eq!(line, "mounted\n");
        Self { keeper, directory }
    }

    /// A file on the disk, as this process sees it.
    fn file(&self, name: &str) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.keeper.0.id()));
        let path = self.directory.path().join(name);
        root.join(path.strip_prefix("/").unwrap_or(&path))
    }

    /// Starts the store with its file on the disk.
    async fn serve(&self) -> (Program, BufReader<ChildStderr>, EtcdStore, String) {
        let started = Command::new("nsenter")
            .args(["--mount", "--target", &self.keeper.0.id().to_string()])
            .arg(env!("CARGO_BIN_EXE_cambric"))
            .args(["store", "serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(self.directory.path().join("store"))
            .env_remove("CAMBRIC_LOG")
            .stderr(Stdio::piped())
            .spawn();
        let mut program = Program(started.expect("nsenter starts"));
        let mut log = BufReader::new(program.0.stderr.take().expect("piped"));
        let address = address(&mut log);
        let options = EtcdOptions::new([format!("http://{address}")]);
        let store = EtcdStore::connect(&options).await.expect("connected");
        (program, log, store, address)
    }

    /// Lets another program use all space that is left, in this file.
    fn fill(&self, name: &str) {
        let file = File::options()
            .create(true)
            .append(true)
            .open(self.file(name));
        let mut other = file.expect("a file");
        for octets in [1 << 20, 4096, 1] {
            loop {
                match other.write_all(&vec![b'x'; octets]) {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::StorageFull => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.file(name)).expect("removed");
    }
}

async fn put(store: &EtcdStore, key: String) -> Result<Revision, Error> {
    let value = vec![b'v'; 100_000];
    store.put(key.into(), value.into(), LeaseId::NONE).await
}

/// Writes until the store reports that the disk is full.
async fn write_until_full(store: &EtcdStore) {
    for number in 0..1000 {
        match put(store, format!("/late/{number:04}")).await {
            Ok(_) => {}
            Err(error) => return assert_eq!(error, Error::NoSpace),
        }
    }
    panic!("a full disk accepts everything");
}

/// Waits until the store accepts writes.
async fn write_again(store: &EtcdStore) {
    let end = Instant::now() + PATIENCE;
    while let Err(error) = put(store, "/again".into()).await {
        assert_eq!(error, Error::NoSpace);
        assert!(Instant::now() < end, "writes are still rejected");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn keys(store: &EtcdStore, prefix: &'static str) -> usize {
    let listing = store.list(KeyRange::prefix(prefix)).await;
    listing.expect("an answer").items.len()
}

fn etcdctl(address: &str, arguments: &[&str]) -> String {
    let output = Command::new("etcdctl")
        .env("ETCDCTL_API", "3")
        .args(["--endpoints", address, "--command-timeout", "60s"])
        .args(arguments)
        .output()
        .expect("etcdctl starts");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn kill(program: &mut Child) {
    program.kill().expect("it runs");
    program.wait().expect("it ends");
}

// Promise (Datastore): On a full disk the small store answers reads, deletions and compactions, and
// accepts writes again when there is space.
#[tokio::test]
async fn full_disk_keeps_store_readable_and_deletable() {
    if !netns_lab::allowed("full_disk_keeps_store_readable_and_deletable") {
        return;
    }
    let disk = Disk::new();
    let (mut program, _log, store, address) = disk.serve().await;
    assert_eq!(etcdctl(&address, &["alarm", "list"]), "");
    for number in 0..60 {
        put(&store, format!("/kept/{number:02}"))
            .await
            .expect("written");
    }
    for number in 0..4 {
        // A deletion of these needs some space.
        let key = format!("/long/{number}/{}", "x".repeat(4000));
        let empty = store.put(key.into(), "".into(), LeaseId::NONE).await;
        empty.expect("written");
    }
    disk.fill("other");
    write_until_full(&store).await;

    // The state has a name, and nothing is lost.
    assert!(etcdctl(&address, &["alarm", "list"]).contains("alarm:NOSPACE"));
    let status = etcdctl(&address, &["endpoint", "status", "--write-out", "json"]);
    assert!(status.contains("alarm:NOSPACE"), "{status}");
    assert_eq!(keys(&store, "/kept/").await, 60);
    let before = store.list(KeyRange::all()).await.expect("an answer");
    assert_eq!(store.lease_grant(60).await, Err(Error::NoSpace));

    // Also after a start on the full disk.
    kill(&mut program.0);
    let (mut program, _log, store, address) = disk.serve().await;
    let after = store.list(KeyRange::all()).await.expect("an answer");
    assert_eq!(after.items, before.items);
    write_until_full(&store).await;

    // A request to clear the alarm does not help; a deletion is possible, and watches see it.
    etcdctl(&address, &["alarm", "disarm"]);
    assert!(etcdctl(&address, &["alarm", "list"]).contains("alarm:NOSPACE"));
    let revision = after.header.revision.next();
    let range = WatchRequest::from(KeyRange::prefix("/kept/"), revision);
    let mut watch = store.watch(range).await.expect("a watch");
    assert!(store.delete("/kept/00".into()).await.expect("deleted"));
    let batch = tokio::time::timeout(PATIENCE, watch.next()).await;
    let batch = batch.expect("in time").expect("a batch");
    let deleted = batch.events.first().expect("an event");
    assert_eq!(deleted.item.key, "/kept/00");

    // If others take what was held back, a change is not stored, and nothing else is lost.
    disk.fill("more");
    let before = store.list(KeyRange::prefix("/long/")).await;
    let mut left = before.expect("an answer").items;
    let refused = loop {
        let item = left.pop().expect("the disk is full");
        match store.delete(item.key.clone()).await {
            Ok(is_deleted) => assert!(is_deleted),
            Err(error) => {
                left.push(item);
                break error;
            }
        }
    };
    assert_eq!(refused, Error::NoSpace);
    let after = store.list(KeyRange::prefix("/long/")).await;
    assert_eq!(after.expect("an answer").items, left);
    assert_eq!(keys(&store, "/kept/").await, 59);
    disk.remove("more");

    // The deletion of much more, and a compaction, make room by themselves.
    for number in 1..60 {
        let key = format!("/kept/{number:02}");
        assert!(store.delete(key.into()).await.expect("deleted"));
    }
    let now = store.list(KeyRange::all()).await.expect("an answer");
    store.compact(now.header.revision).await.expect("compacted");
    write_again(&store).await;
    assert_eq!(etcdctl(&address, &["alarm", "list"]), "");

    // The other program frees the disk.
    disk.fill("other");
    write_until_full(&store).await;
    disk.remove("other");
    write_again(&store).await;
    kill(&mut program.0);
    let (_program, _log, store, _) = disk.serve().await;
    assert_eq!(keys(&store, "/again").await, 1);
    assert!(disk.file("store.reserve").exists());
}
