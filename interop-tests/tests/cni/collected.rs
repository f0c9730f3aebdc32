//! GC beside an ADD that is under way.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;

use datastore::resources::Item;
use interop_tests::PATIENCE;
use lab::{Error, until};
use model::Kind;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use serde_json::{Value, json};

use crate::ID;
use crate::host::{Container, Fabric, Node, on_a_host};

/// Locks of all attachments of a host, as calls under way have them.
struct Busy(File);

impl Busy {
    fn on(node: &Node) -> Self {
        let file = node.site.host.directory().join("cni.lock");
        let mut options = File::options();
        let file = options.read(true).write(true).open(file).unwrap();
        // All octets but the first, which is that of address management.
        let range = libc::flock {
            l_type: libc::F_WRLCK as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: 1,
            l_len: 0,
            l_pid: 0,
        };
        fcntl(&file, FcntlArg::F_OFD_SETLK(&range)).expect("there is no call");
        Self(file)
    }

    /// Whether somebody waits for one of them.
    fn is_in_the_way(&self) -> bool {
        let file = format!(":{} ", self.0.metadata().unwrap().ino());
        let locks = fs::read_to_string("/proc/locks").unwrap();
        let mut waiting = locks.lines().filter(|line| line.contains("->"));
        waiting.any(|line| line.contains(&file))
    }
}

/// Takes the only endpoint out of the store.
async fn take_out(fabric: &Fabric) -> Item {
    let listed = fabric.resources.list(Kind::WorkloadEndpoint, None).await;
    let endpoint = listed.unwrap().items.pop().expect("an endpoint");
    let deleted = fabric.resources.delete(&endpoint.key, None).await;
    deleted.expect("deleted");
    endpoint
}

#[test]
fn what_an_add_has_made_before_it_is_done_is_not_collected() {
    on_a_host("cni and GC beside ADD", async |fabric, node| {
        let config = node.network(json!({}));
        let container = Container::bare(ID);
        let mut collected = config.clone();
        collected["cni.dev/valid-attachments"] = json!([]);
        node.asks("ADD", &container, &config)
            .await
            .expect("connected");
        let whole = fabric.left().await;

        // As it is just before ADD writes the endpoint.
        let mut endpoint = take_out(&fabric).await.value;
        endpoint["metadata"]["resourceVersion"] = Value::Null;
        let busy = Busy::on(&node);
        let call = node.call("GC", &container, &collected);
        let mut collecting = node.site.host.spawn("gc", &call).unwrap();
        until::<(), Error>(PATIENCE, "GC waits for ADD", async || {
            Ok(busy.is_in_the_way().then_some(()).ok_or_else(String::new))
        })
        .await
        .unwrap();
        fabric.resources.create(endpoint).await.expect("written");
        drop(busy);
        let status = collecting.wait(PATIENCE).await.unwrap();
        assert!(status.success(), "{}", collecting.log_tail());
        assert_eq!(fabric.left().await, whole);
        assert_eq!(node.interfaces().await, ["cali9f3c0123456"]);

        // An ADD that was killed there leaves what nobody is at work on.
        take_out(&fabric).await;
        assert_eq!(
            node.asks("GC", &container, &collected).await,
            Ok(Value::Null)
        );
        assert_eq!(fabric.left().await, [""; 0]);
        assert_eq!(node.interfaces().await, [""; 0]);
    });
}
