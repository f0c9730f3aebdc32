use super::*;

fn registration(state: &str, weight: u32) -> Registration {
    let text = format!(
        r#"{{"asNumber":64512,"ipv4Address":"10.0.0.1","ipv6Address":"fd00::1",
            "clusterID":"10.0.0.1","zone":"east","weight":{weight},"state":"{state}","clients":7}}"#
    );
    Registration::parse(text.as_bytes()).expect("reads")
}

#[test]
fn all_that_there_are_or_were_are_listed() {
    let mut fleet = Fleet::default();
    let draining = registration("draining", 100);
    fleet.registered.insert("rr1".to_owned(), draining);
    let id = "0.0.0.7".parse().expect("an id");
    fleet
        .claims
        .insert("rr2".to_owned(), [(id, Revision(5))].into());
    fleet.drains.insert("rr2".to_owned());
    let table = fleet.table();
    let lines: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(
        lines[1],
        [
            "rr1",
            "draining",
            "east",
            "100",
            "7",
            "10.0.0.1",
            "10.0.0.1,fd00::1"
        ]
    );
    assert_eq!(
        lines[2],
        [
            "rr2", "away,", "to", "be", "drained", "-", "-", "-", "0.0.0.7", "-"
        ]
    );
}

#[test]
fn the_last_one_that_takes_clients_is_known() {
    let mut fleet = Fleet::default();
    fleet
        .registered
        .insert("rr1".to_owned(), registration("active", 100));
    assert!(!fleet.others_take_clients("rr1"));
    fleet
        .registered
        .insert("rr2".to_owned(), registration("active", 0));
    fleet
        .registered
        .insert("rr3".to_owned(), registration("drained", 100));
    assert!(!fleet.others_take_clients("rr1"));
    fleet
        .registered
        .insert("rr4".to_owned(), registration("active", 1));
    assert!(fleet.others_take_clients("rr1"));
}

/// A store with a claim of rr1, and the fleet that was read from it.
async fn claimed() -> (etcd_lite::Local, Fleet) {
    let store = etcd_lite::Local::empty();
    put(&store, "cluster/10.0.0.1", r#"{"reflector":"rr1"}"#).await;
    put(&store, "drain/rr1", "{}").await;
    let fleet = Fleet::read(&store).await.expect("reads");
    (store, fleet)
}

async fn put(store: &etcd_lite::Local, path: &str, value: &str) {
    let key = format!("{FABRIC_PREFIX}{path}");
    let written = store.put(key.into(), value.to_owned().into(), LeaseId::NONE);
    written.await.expect("written");
}

#[tokio::test]
async fn a_reflector_is_forgotten_as_a_whole() {
    let (store, _) = claimed().await;
    remove(&store, "rr1").await.expect("removed");
    let left = store.list(KeyRange::prefix(FABRIC_PREFIX)).await;
    assert_eq!(left.expect("lists").items, []);
    let error = remove(&store, "rr1").await.expect_err("nothing is there");
    assert!(error.to_string().contains("has nothing"), "{error}");
}

#[tokio::test]
async fn reflector_that_returns_during_removal_keeps_its_id() {
    let (store, read) = claimed().await;
    put(
        &store,
        "reflector/rr1",
        r#"{"asNumber":64512,"ipv4Address":"10.0.0.1","clusterID":"10.0.0.1","state":"active"}"#,
    )
    .await;
    let done = store.txn(read.removal_of("rr1")).await.expect("answered");
    assert!(!done.succeeded);
    let (store, read) = claimed().await;
    put(&store, "cluster/10.0.0.1", r#"{"reflector":"rr2"}"#).await;
    let done = store.txn(read.removal_of("rr1")).await.expect("answered");
    assert!(!done.succeeded, "the claim is another's by now");
    let left = store.list(KeyRange::prefix(FABRIC_PREFIX)).await;
    assert_eq!(left.expect("lists").items.len(), 2);
}
