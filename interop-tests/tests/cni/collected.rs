//! GC during an ADD.

use std::fs::File;

use calico_model::Kind;
use calico_store::resources::Item;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use serde_json::{Value, json};

use crate::ID;
use crate::host::{Container, Fabric, Node, on_a_host};

/// Locks of all attachments of a host, as calls in progress hold them.
struct Busy(#[expect(dead_code, reason = "closed when dropped")] File);

impl Busy {
    fn on_attachments(node: &Node) -> Self {
        let file = node.site.host.directory().join("cni.lock");
        let mut options = File::options();
        let file = options.read(true).write(true).open(file).unwrap();
        // All octets except the first, which is the lock of IPAM.
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
}

/// Deletes the only endpoint from the datastore, and returns it.
async fn take_out(fabric: &Fabric) -> Item {
    let listed = fabric.resources.list(Kind::WorkloadEndpoint, None).await;
    let endpoint = listed.unwrap().items.pop().expect("an endpoint");
    let deleted = fabric.resources.delete(&endpoint.key, None).await;
    deleted.expect("deleted");
    endpoint
}

#[test]
fn objects_of_an_add_in_progress_are_not_collected() {
    on_a_host("cni and GC beside ADD", async |fabric, node| {
        let config = node.network(json!({}));
        let container = Container::bare(ID);
        let mut collected = config.clone();
        collected["cni.dev/valid-attachments"] = json!([]);
        node.asks("ADD", &container, &config)
            .await
            .expect("connected");
        let whole = fabric.left().await;

        // The state just before ADD writes the endpoint, and the state while it waits for Felix.
        let busy = Busy::on_attachments(&node);
        let collect = async || node.asks("GC", &container, &collected).await;
        let interfaces = ["cali9f3c0123456"];
        let mut endpoint = take_out(&fabric).await.value;
        endpoint["metadata"]["resourceVersion"] = Value::Null;
        let addresses = fabric.left().await;
        assert_eq!(collect().await, Ok(Value::Null));
        assert_eq!(fabric.left().await, addresses);
        assert_eq!(node.interfaces().await, interfaces);
        fabric.resources.create(endpoint).await.expect("written");
        assert_eq!(collect().await, Ok(Value::Null));
        assert_eq!(fabric.left().await, whole);
        assert_eq!(node.interfaces().await, interfaces);
        drop(busy);

        // An ADD that was killed at this point leaves state without a call in progress.
        take_out(&fabric).await;
        assert_eq!(collect().await, Ok(Value::Null));
        assert_eq!(fabric.left().await, [""; 0]);
        assert_eq!(node.interfaces().await, [""; 0]);
    });
}
