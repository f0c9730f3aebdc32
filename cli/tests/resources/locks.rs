//! `cambric datastore migrate`.

use serde_json::json;

use crate::tool::Tool;

const CLUSTER: &str = "clusterinformations/default";

pub(crate) async fn the_store_is_locked_and_unlocked(tool: &Tool) {
    // What is not there is not made: nobody would be told who it belongs to.
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
    let said = |ready: bool| {
        let mut cluster = before.clone();
        cluster["spec"]["datastoreReady"] = json!(ready);
        cluster
    };

    // All else stays as it is, and to say it twice is no fault.
    for _ in 0..2 {
        assert_eq!(
            tool.done(&["datastore", "migrate", "lock"]),
            "Datastore locked.\n"
        );
        assert_eq!(tool.stored(CLUSTER).await, said(false));
    }
    // It can be filled, and stays locked.
    tool.fed(
        &["apply", "-f", "-"],
        &pool.replace("65", "66").replace("name: p", "name: q"),
    );
    assert_eq!(tool.stored(CLUSTER).await, said(false));
    assert_eq!(
        tool.done(&["datastore", "migrate", "unlock"]),
        "Datastore unlocked.\n"
    );
    assert_eq!(tool.stored(CLUSTER).await, said(true));

    // What does not read is left to who can mend it.
    tool.put(CLUSTER, &json!({"spec": "what?"})).await;
    let refused = tool.refused(&["datastore", "migrate", "lock"]);
    assert!(refused.contains("ClusterInformation(default)"), "{refused}");
    assert_eq!(tool.stored(CLUSTER).await, json!({"spec": "what?"}));
}
