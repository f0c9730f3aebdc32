use daemon_common::control::Control;
use daemon_common::paths;
use etcd_lite::Local;

use super::*;

async fn put(store: &Local, key: String, value: Vec<u8>) {
    let put = store.put(key.into(), value.into(), LeaseId::NONE);
    put.await.expect("put");
}

async fn with_node() -> Local {
    let store = Local::empty();
    let node = format!("{}n1", Kind::Node.prefix());
    put(&store, node, b"{}".to_vec()).await;
    store
}

fn report(since: &str, stage: DrainStage) -> Vec<u8> {
    let report = DrainReport {
        since: since.to_owned(),
        stage,
        ..DrainReport::default()
    };
    report.encode()
}

#[tokio::test]
async fn request_is_stored_once_and_only_for_a_node() {
    let store = with_node().await;
    let missing = request(&store, "n2").await.expect_err("no node");
    assert_eq!(missing.to_string(), "there is no Node n2 in the datastore");
    let first = request(&store, "n1").await.expect("a request");
    let key = FabricKey::Drain("n1".to_owned()).to_string();
    let stored = store.get(key.clone().into()).await.expect("an answer");
    let stored = DrainRequest::parse(&stored.expect("a request").value);
    assert_eq!(stored.expect("a request").since, first);
    let earlier = DrainRequest::since("noon".to_owned()).encode();
    put(&store, key, earlier).await;
    assert_eq!(request(&store, "n1").await.expect("a request"), "noon");

    let key = FabricKey::Reflector("rr1".to_owned()).to_string();
    put(&store, key, b"{}".to_vec()).await;
    let error = request(&store, "rr1").await.expect_err("a reflector");
    assert!(error.to_string().contains("cambric reflector drain rr1"));
}

#[test]
fn drain_until_the_stop_is_only_for_this_host() {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: DrainArgs,
    }
    let parse = |words: &str| {
        let words = words.split_whitespace();
        <Line as clap::Parser>::try_parse_from(words).map(|line| line.args.until_stop)
    };
    assert!(parse("drain --local --until-stop").is_ok_and(|until_stop| until_stop));
    assert!(parse("drain --local").is_ok_and(|until_stop| !until_stop));
    for words in ["drain n1 --until-stop", "drain --until-stop"] {
        assert!(parse(words).is_err(), "{words}");
    }
}

#[tokio::test]
async fn second_request_keeps_the_time_of_the_first() {
    let store = with_node().await;
    for since in ["one", "two"] {
        let stored = create(&store, "n1", since.to_owned()).await;
        assert_eq!(stored.expect("a request"), "one");
    }
    let key = FabricKey::Drain("n1".to_owned()).to_string();
    let stored = store.get(key.into()).await.expect("an answer");
    assert_eq!(stored.expect("a request").version, 1, "written once");
}

#[tokio::test]
async fn undrain_needs_a_request_or_a_report() {
    let store = with_node().await;
    let error = end_request(&store, "n1").await.expect_err("no drain");
    assert_eq!(error.to_string(), "node n1 is not being drained");
    let key = FabricKey::DrainReport("n1".to_owned()).to_string();
    put(&store, key, report("noon", DrainStage::Drained)).await;
    end_request(&store, "n1").await.expect("it has a report");
    request(&store, "n1").await.expect("a request");
    end_request(&store, "n1").await.expect("it is deleted");
    let key = FabricKey::Drain("n1".to_owned()).to_string();
    assert_eq!(store.get(key.into()).await.expect("an answer"), None);
}

#[tokio::test]
async fn wait_ends_with_the_report_of_the_same_request() {
    let store = with_node().await;
    let key = FabricKey::DrainReport("n1".to_owned()).to_string();
    put(&store, key.clone(), report("before", DrainStage::Drained)).await;
    let is_done = |report: Option<&DrainReport>| {
        report.is_some_and(|one| one.since == "noon" && one.stage == DrainStage::Drained)
    };
    let waits = wait(&store, "n1", Duration::from_secs(600), is_done);
    let node = async {
        for stage in [DrainStage::Services, DrainStage::All, DrainStage::Drained] {
            put(&store, key.clone(), report("noon", stage)).await;
        }
    };
    let (found, ()) = tokio::join!(waits, node);
    let found = found.expect("in time").expect("a report");
    assert_eq!((found.since.as_str(), found.behind), ("noon", 0));
}

#[tokio::test]
async fn wait_for_a_silent_node_has_an_end() {
    let store = with_node().await;
    let waits = wait(&store, "n1", Duration::ZERO, |report| report.is_some());
    let error = waits.await.expect_err("no report").to_string();
    assert!(error.contains("not finished within 0 s"), "{error}");
    assert!(error.contains("is its BGP daemon running?"), "{error}");
}

#[tokio::test]
async fn node_of_this_host_is_drained_on_its_control_socket() {
    let directory = tempfile::tempdir().expect("directory");
    let socket = paths::control_below(directory.path(), "bgp-client");
    let mut control = Control::bind(socket).expect("bound");
    let figures = |stage: &str| DrainFigures {
        stage: stage.to_owned(),
        source: "control socket".to_owned(),
        since: "noon".to_owned(),
        neighbors: 2,
        behind: 0,
    };
    let serve = async {
        let mut asked = Vec::new();
        for stage in ["services", "all", "drained"] {
            let request = control.next().await;
            asked.push(request.command.clone());
            let drain = Some(figures(stage));
            request.reply(Reply::Drain(Drain { drain }));
        }
        asked
    };
    let args = DrainArgs {
        args: Args {
            name: None,
            local: true,
            no_wait: false,
            timeout: Duration::from_secs(600),
            connection: Connection::default(),
        },
        until_stop: true,
    };
    let (text, asked) = tokio::join!(drain(args, directory.path()), serve);
    let text = text.expect("it is drained");
    assert!(
        text.starts_with("this node is drained since noon"),
        "{text}"
    );
    let request = |on, until_stop| Command::Drain { on, until_stop };
    let [on, query] = [request(Some(true), true), request(None, false)];
    assert_eq!(asked, [on, query.clone(), query]);
}
