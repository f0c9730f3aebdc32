//! `cambric reflector`, with a reflector that the test plays.

use std::thread;

use calico_store::{LeaseId, Store};

use crate::tool::Tool;

/// Writes the registration of a reflector.
async fn register(tool: &Tool, name: &str, state: &str) {
    let value = format!(
        r#"{{"asNumber":64512,"ipv4Address":"10.0.0.1","clusterID":"10.0.0.1","state":"{state}"}}"#
    );
    let key = format!("/cambric/v1/reflector/{name}");
    put(tool, &key, &value).await;
}

async fn put(tool: &Tool, key: &str, value: &str) {
    let (key, value) = (key.to_owned().into(), value.to_owned().into());
    let store = tool.store().await;
    store.put(key, value, LeaseId::NONE).await.unwrap();
}

async fn is_there(tool: &Tool, key: &str) -> bool {
    let found = tool.store().await.get(key.to_owned().into()).await;
    found.unwrap().is_some()
}

pub(crate) async fn reflectors_are_listed_drained_and_removed(tool: &Tool) {
    let request = "/cambric/v1/drain/rr1";
    let refused = tool.refused(&["reflector", "drain", "rr1"]);
    assert!(
        refused.contains("no reflector rr1 is registered"),
        "{refused}"
    );
    register(tool, "rr1", "active").await;
    put(
        tool,
        "/cambric/v1/cluster/10.0.0.1",
        r#"{"reflector":"rr1"}"#,
    )
    .await;
    let refused = tool.refused(&["reflector", "drain", "rr1"]);
    assert!(
        refused.contains("no other active reflector can accept"),
        "{refused}"
    );
    assert!(!is_there(tool, request).await, "nothing was asked");

    register(tool, "rr2", "active").await;
    let table = tool.done(&["reflector", "list"]);
    assert_eq!(table.lines().count(), 3, "{table}");
    assert!(table.contains("rr1"), "{table}");

    // The command waits until the reflector reports that it is drained.
    let url = tool.url().to_owned();
    let waits = thread::spawn(move || Tool::at(&url).done(&["reflector", "drain", "rr1"]));
    while !is_there(tool, request).await {
        tokio::task::yield_now().await;
    }
    register(tool, "rr1", "draining").await;
    register(tool, "rr1", "drained").await;
    let output = waits.join().unwrap();
    assert!(
        output.ends_with("reflector rr1 is drained: it accepts no session until it is undrained\n"),
        "{output}"
    );

    register(tool, "rr1", "active").await;
    let output = tool.done(&["reflector", "undrain", "rr1"]);
    assert_eq!(output, "reflector rr1 accepts clients\n");
    assert!(!is_there(tool, request).await);
    let refused = tool.refused(&["reflector", "undrain", "rr1"]);
    assert!(refused.contains("is not being drained"), "{refused}");

    let refused = tool.refused(&["reflector", "remove", "rr1"]);
    assert!(refused.contains("rr1 is running"), "{refused}");
    let key = "/cambric/v1/reflector/rr1".to_owned();
    assert!(tool.store().await.delete(key.into()).await.unwrap());
    assert!(tool.done(&["reflector", "list"]).contains("away"));
    tool.done(&["reflector", "remove", "rr1"]);
    assert!(!is_there(tool, "/cambric/v1/cluster/10.0.0.1").await);
    tool.refused(&["reflector", "remove", "rr1"]);
}
