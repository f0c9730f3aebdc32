//! `cambric datastore migrate`.

use serde_json::json;

use crate::tool::Tool;

const CLUSTER: &str = "clusterinformations/default";

pub(crate) async fn the_store_is_locked_and_unlocked(tool: &Tool) {
    // A missing ClusterInformation is not created: it would not have the cluster's GUID.
    for step in ["lock", "unlock"] {
        let refused = tool.refused(&["datastore", "migrate", step]);
        assert!(
            refused.contains("ClusterInformation(default) does not exist"),
            "{refused}"
        );
    }
    let pool = "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: p}\nspec: {cidr: 10.65.0.0/16}\n";
    tool.fed(&["apply", "-f", "-"], pool);
    let mut before = tool.stored(CLUSTER).await;
    before["spec"]["clusterType"] = json!("openstack");
    before["spec"]["ofTheFuture"] = json!({"kept": true});
    tool.put(CLUSTER, &before).await;
    let information = |ready: bool| {
        let mut cluster = before.clone();
        cluster["spec"]["datastoreReady"] = json!(ready);
        cluster
    };

    // All other fields stay, and a repetition is not an error.
    for _ in 0..2 {
        assert_eq!(
            tool.done(&["datastore", "migrate", "lock"]),
            "Datastore locked.\n"
        );
        assert_eq!(tool.stored(CLUSTER).await, information(false));
    }
    // The datastore can be filled, and stays locked.
    tool.fed(
        &["apply", "-f", "-"],
        &pool.replace("65", "66").replace("name: p", "name: q"),
    );
    assert_eq!(tool.stored(CLUSTER).await, information(false));
    assert_eq!(
        tool.done(&["datastore", "migrate", "unlock"]),
        "Datastore unlocked.\n"
    );
    assert_eq!(tool.stored(CLUSTER).await, information(true));

    // An invalid ClusterInformation is left unchanged.
    tool.put(CLUSTER, &json!({"spec": "what?"})).await;
    let refused = tool.refused(&["datastore", "migrate", "lock"]);
    assert!(refused.contains("ClusterInformation(default)"), "{refused}");
    assert_eq!(tool.stored(CLUSTER).await, json!({"spec": "what?"}));
}
