//! The API server of the tests behaves as recorded from a real one.

use interop_tests::{ApiServer, PATIENCE};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::rig::{LOOPBACK, namespace, pod, policy, run};

type Reader = BufReader<TcpStream>;

/// Sends a request on a new connection, and reads the head of the answer: its status.
async fn open(server: &ApiServer, head: &str, body: &str) -> (u16, Reader) {
    let stream = TcpStream::connect(server.address())
        .await
        .expect("a connection");
    let mut stream = BufReader::new(stream);
    let (line, more) = head.split_once('\n').unwrap_or((head, ""));
    let length = body.len();
    let text = format!(
        "{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{more}Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(text.as_bytes()).await.expect("sent");
    let mut status = String::new();
    stream.read_line(&mut status).await.expect("an answer");
    let code = status.split(' ').nth(1).and_then(|code| code.parse().ok());
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.expect("a head");
        if line.trim().is_empty() {
            return (code.expect("a status"), stream);
        }
    }
}

async fn ask(server: &ApiServer, head: &str, body: &Value) -> (u16, Value) {
    let body = match body {
        Value::Null => String::new(),
        body => body.to_string(),
    };
    let (code, mut stream) = open(server, head, &body).await;
    let mut text = String::new();
    let read = timeout(PATIENCE, stream.read_to_string(&mut text)).await;
    read.expect("in time").expect("a body");
    let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
    (code, value)
}

async fn get(server: &ApiServer, path: &str) -> (u16, Value) {
    ask(server, &format!("GET {path}"), &Value::Null).await
}

/// Reads the next event of a watch; `None` at its end.
async fn event(stream: &mut Reader) -> Option<(String, Value)> {
    loop {
        let mut line = String::new();
        let read = timeout(PATIENCE, stream.read_line(&mut line)).await;
        if read.expect("in time").ok()? == 0 {
            return None;
        }
        // The lengths of the chunks are lines of their own.
        if let Ok(Value::Object(mut event)) = serde_json::from_str(&line) {
            let object = event.remove("object").unwrap_or_default();
            let kind = event.remove("type").unwrap_or_default();
            return Some((kind.as_str().unwrap_or_default().to_owned(), object));
        }
    }
}

async fn watch(server: &ApiServer, path: &str) -> Reader {
    let (code, stream) = open(server, &format!("GET {path}"), "").await;
    // Also an expired watch is answered with 200.
    assert_eq!(code, 200, "{path}");
    stream
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().expect("items").iter();
    let names = items.map(|item| item["metadata"]["name"].as_str().unwrap_or_default());
    names.collect()
}

async fn filled() -> ApiServer {
    let server = ApiServer::start(LOOPBACK, 1).await;
    server.apply(namespace("prod"));
    server
}

#[test]
fn pages_are_of_one_revision() {
    run(async {
        let server = filled().await;
        let (code, first) = get(&server, "/api/v1/namespaces?limit=2").await;
        assert_eq!(code, 200);
        assert_eq!(first["kind"], "NamespaceList");
        assert_eq!(names(&first), ["default", "kube-node-lease"]);
        assert_eq!(first["metadata"]["remainingItemCount"], 3);
        assert_eq!(first["items"][0]["kind"], Value::Null);
        // Changes after the first page are not in the second one.
        server.apply(namespace("later"));
        server.remove("Namespace", "", "prod");
        let token = first["metadata"]["continue"].as_str().expect("a token");
        let path = format!("/api/v1/namespaces?limit=5&continue={token}");
        let (_, second) = get(&server, &path).await;
        assert_eq!(names(&second), ["kube-public", "kube-system", "prod"]);
        let revision = |page: &Value| page["metadata"]["resourceVersion"].clone();
        assert_eq!(revision(&first), revision(&second));
        assert_eq!(second["metadata"]["continue"], Value::Null);
        server.compact();
        let (code, status) = get(&server, &path).await;
        assert_eq!((code, status["reason"].as_str()), (410, Some("Expired")));
        // With a selector the number of further objects is unknown.
        let selected = "/api/v1/namespaces?limit=1&fieldSelector=metadata.name!=x";
        let (_, page) = get(&server, selected).await;
        assert_eq!(page["metadata"]["remainingItemCount"], Value::Null);
    });
}

#[test]
fn lists_match_the_requested_revision() {
    run(async {
        let server = filled().await;
        let before = server.revision();
        server.apply(namespace("later"));
        let path = |how: &str| format!("/api/v1/namespaces?resourceVersion={how}");
        let exact = path(&format!("{before}&resourceVersionMatch=Exact"));
        let (_, list) = get(&server, &exact).await;
        assert!(!names(&list).contains(&"later"));
        assert_eq!(list["metadata"]["resourceVersion"], before.to_string());
        let newer = path(&format!("{before}&resourceVersionMatch=NotOlderThan"));
        assert!(names(&get(&server, &newer).await.1).contains(&"later"));
        server.compact();
        assert_eq!(get(&server, &exact).await.0, 410);
        let future = path("99999&resourceVersionMatch=NotOlderThan");
        assert_eq!(get(&server, &future).await.0, 504);
        assert_eq!(
            get(&server, "/api/v1/namespaces?resourceVersionMatch=Exact")
                .await
                .0,
            422
        );
    });
}

#[test]
fn watch_resumes_and_expires_as_recorded() {
    run(async {
        let server = filled().await;
        let from = server.revision();
        server.apply(pod("web", json!({"app": "web"})));
        let path = |more: &str| format!("/api/v1/pods?watch=true&resourceVersion={from}{more}");
        let mut all = watch(&server, &path("&allowWatchBookmarks=true")).await;
        let mut of_app = watch(&server, &path("&labelSelector=app%3Dweb")).await;
        for stream in [&mut all, &mut of_app] {
            let (kind, object) = event(stream).await.expect("an event");
            assert_eq!((kind.as_str(), &object["kind"]), ("ADDED", &json!("Pod")));
        }
        server.apply(pod("web", json!({"app": "db"})));
        assert_eq!(event(&mut all).await.expect("an event").0, "MODIFIED");
        // The object no longer matches the selector.
        assert_eq!(event(&mut of_app).await.expect("an event").0, "DELETED");
        server.send_bookmarks();
        let (kind, object) = event(&mut all).await.expect("an event");
        assert_eq!(kind, "BOOKMARK");
        let revision = server.revision().to_string();
        assert_eq!(object["metadata"]["resourceVersion"], revision);
        assert_eq!(object["spec"], Value::Null);
        server.remove("Pod", "prod", "web");
        let (kind, object) = event(&mut all).await.expect("an event");
        assert_eq!(kind, "DELETED");
        let revision = server.revision().to_string();
        assert_eq!(object["metadata"]["resourceVersion"], revision);
        server.end_watches();
        assert!(event(&mut all).await.is_none());

        server.compact();
        let mut expired = watch(&server, &path("")).await;
        let (kind, status) = event(&mut expired).await.expect("an event");
        assert_eq!(
            (kind.as_str(), status["code"].as_u64()),
            ("ERROR", Some(410))
        );
        assert_eq!(status["reason"], "Expired");
        let message = format!("too old resource version: {from} ({revision})");
        assert_eq!(status["message"], message);
        assert!(event(&mut expired).await.is_none());
        // A streamed list needs a feature that the recorded server does not have.
        let mut streamed = watch(&server, &path("&sendInitialEvents=true")).await;
        assert_eq!(event(&mut streamed).await.expect("an event").0, "ERROR");
        // Without a version, the watch begins with all objects.
        let mut fresh = watch(&server, "/api/v1/namespaces?watch=1").await;
        assert_eq!(event(&mut fresh).await.expect("an event").0, "ADDED");
    });
}

#[test]
fn writes_have_the_errors_of_the_api() {
    run(async {
        let server = filled().await;
        let pods = "/api/v1/namespaces/prod/pods";
        let object = pod("web", json!({}));
        let (code, created) = ask(&server, &format!("POST {pods}"), &object).await;
        assert_eq!(code, 201);
        assert!(created["metadata"]["uid"].is_string());
        let again = ask(&server, &format!("POST {pods}"), &object).await;
        assert_eq!(
            (again.0, &again.1["reason"]),
            (409, &json!("AlreadyExists"))
        );
        let nowhere = "POST /api/v1/namespaces/none/pods";
        assert_eq!(ask(&server, nowhere, &object).await.0, 404);
        let mut stale = created.clone();
        stale["metadata"]["resourceVersion"] = json!("1");
        let stale = ask(&server, &format!("PUT {pods}/web"), &stale).await;
        assert_eq!((stale.0, &stale.1["reason"]), (409, &json!("Conflict")));
        // A write without a change has no revision.
        let same = ask(&server, &format!("PUT {pods}/web"), &created).await;
        assert_eq!(same, (200, created.clone()));
        let merge = format!("PATCH {pods}/web\nContent-Type: application/merge-patch+json\r\n");
        let patch = json!({"metadata": {"labels": {"a": "b"}}});
        let (code, patched) = ask(&server, &merge, &patch).await;
        assert_eq!(
            (code, &patched["metadata"]["labels"]["a"]),
            (200, &json!("b"))
        );
        assert_eq!(patched["spec"], created["spec"]);
        assert_eq!(
            ask(&server, &format!("PATCH {pods}/web"), &patch).await.0,
            415
        );
        assert_eq!(
            ask(&server, &format!("DELETE {pods}/web"), &Value::Null)
                .await
                .0,
            200
        );
        assert_eq!(get(&server, &format!("{pods}/web")).await.0, 404);
        assert_eq!(
            ask(&server, &format!("POST {pods}"), &json!([])).await.0,
            400
        );
        let lease = json!({"kind": "Lease", "metadata": {"name": "l", "namespace": "prod"},
            "spec": {"holderIdentity": "a"}});
        let leases = "/apis/coordination.k8s.io/v1/namespaces/prod/leases";
        assert_eq!(ask(&server, &format!("POST {leases}"), &lease).await.0, 201);
    });
}

#[test]
fn node_conditions_are_merged_by_type() {
    run(async {
        let server = filled().await;
        server.apply(json!({"kind": "Node", "metadata": {"name": "n1"},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}}));
        let head = "PATCH /api/v1/nodes/n1/status\n\
                    Content-Type: application/strategic-merge-patch+json\r\n";
        let condition = json!({"type": "NetworkUnavailable", "status": "False",
            "reason": "CalicoIsUp", "message": "Calico is running on this node"});
        for _ in 0..2 {
            let patch = json!({"status": {"conditions": [condition]}});
            let (code, node) = ask(&server, head, &patch).await;
            assert_eq!(code, 200);
            let ready = json!({"type": "Ready", "status": "True"});
            assert_eq!(node["status"]["conditions"], json!([ready, condition]));
        }
    });
}

#[test]
fn policies_and_namespaces_get_the_recorded_defaults() {
    run(async {
        let server = filled().await;
        let with = |spec: Value| {
            let mut policy = policy("p");
            policy["spec"] = spec;
            server.apply(policy)["spec"].clone()
        };
        // As in the recorded answers of admission.
        let egress = json!([{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]);
        assert_eq!(
            with(json!({"podSelector": {}, "egress": egress})),
            json!({"podSelector": {}, "egress": egress, "policyTypes": ["Ingress", "Egress"]})
        );
        assert_eq!(
            with(json!({"podSelector": {}, "policyTypes": []})),
            json!({"podSelector": {}, "policyTypes": ["Ingress"]})
        );
        assert_eq!(
            with(json!({"ingress": [{"ports": [{"port": 80}, {}]}]}))["ingress"],
            json!([{"ports": [{"port": 80, "protocol": "TCP"}, {"protocol": "TCP"}]}])
        );
        let namespace = server.apply(namespace("other"));
        assert_eq!(
            namespace["metadata"]["labels"],
            json!({"kubernetes.io/metadata.name": "other"})
        );
        assert_eq!(namespace["status"], json!({"phase": "Active"}));
    });
}

#[test]
fn faults_are_answered_as_a_server_does() {
    run(async {
        let server = filled().await;
        let (code, text) = get(
            &server,
            "/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies",
        )
        .await;
        assert_eq!((code, text), (404, json!("404 page not found\n")));
        server.define("ClusterNetworkPolicy");
        let (code, _) = get(
            &server,
            "/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies",
        )
        .await;
        assert_eq!(code, 200);
        assert_eq!(
            get(&server, "/api/v1/widgets").await.1["reason"],
            "NotFound"
        );
        server.throttle(1);
        assert_eq!(get(&server, "/api/v1/pods").await.0, 429);
        server.deny("list", "pods", true);
        let (code, status) = get(&server, "/api/v1/pods").await;
        assert_eq!((code, &status["reason"]), (403, &json!("Forbidden")));
        let review = |resource: &str| json!({"spec": {"resourceAttributes": {"verb": "list", "resource": resource}}});
        let path = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        for (resource, allowed) in [("pods", false), ("nodes", true)] {
            let (code, review) = ask(&server, path, &review(resource)).await;
            assert_eq!((code, &review["status"]["allowed"]), (201, &json!(allowed)));
        }
        assert_eq!(server.count("pods", "list"), 2);
        server.require_token("secret");
        assert_eq!(get(&server, "/api/v1/nodes").await.0, 401);
        let head = "GET /api/v1/nodes\nAuthorization: Bearer secret\r\n";
        assert_eq!(ask(&server, head, &Value::Null).await.0, 200);
    });
}

#[test]
fn stopped_server_refuses_connections_and_keeps_objects() {
    run(async {
        let mut server = filled().await;
        let mut watching = watch(&server, "/api/v1/namespaces?watch=1").await;
        server.stop().await;
        while event(&mut watching).await.is_some() {}
        assert!(TcpStream::connect(server.address()).await.is_err());
        server.resume().await;
        let (_, list) = get(&server, "/api/v1/namespaces").await;
        assert!(names(&list).contains(&"prod"));
        // A restored server has an earlier revision.
        let backup = server.revision();
        server.apply(namespace("lost"));
        server.restore(backup);
        let (_, list) = get(&server, "/api/v1/namespaces").await;
        assert_eq!(list["metadata"]["resourceVersion"], backup.to_string());
        assert!(!names(&list).contains(&"lost"));
    });
}
