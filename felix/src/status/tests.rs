use super::*;

const ENDPOINT: &str = "/calico/felix/v2/no-region/host/n1/workload/k8s/ns%2fp/endpoint/eth0";

fn at(ms: u64) -> Instant {
    Instant(ms * 1_000_000)
}

fn id() -> EndpointId {
    EndpointId {
        orchestrator: "k8s".into(),
        workload: "ns/p".into(),
        endpoint: "eth0".into(),
    }
}

fn reporter(endpoint_reporting: bool) -> Reporter {
    let mut reporter = Reporter::new(at(0), "n1", 7);
    reporter.settings(&Settings {
        endpoint_reporting,
        ..Settings::default()
    });
    reporter
}

fn state(reporter: &mut Reporter, state: EndpointState) {
    reporter.endpoints([(&id(), state)].into_iter());
}

/// The next job, at the time it becomes due.
fn next(reporter: &mut Reporter) -> (Instant, Job) {
    for _ in 0..1000 {
        let now = reporter.poll_timeout().expect("something is due");
        if let Some(job) = reporter.poll(now, 1_772_619_720) {
            return (now, job);
        }
    }
    panic!("nothing to do in a thousand ticks");
}

#[test]
fn own_status_is_written_under_a_lease_and_without() {
    let mut reporter = reporter(false);
    assert_eq!(reporter.poll(at(9_999), 0), None);
    let (now, job) = next(&mut reporter);
    assert_eq!(now, at(10_000));
    let value = br#"{"time":"2026-03-04T10:22:00Z","uptime":10.0,"first_update":true}"#;
    let key = "/calico/felix/v2/no-region/host/n1/status".to_owned();
    let ttl = Some(Duration::from_secs(90));
    assert_eq!(
        job,
        Job::Put {
            key,
            value: value.to_vec(),
            ttl
        }
    );
    assert_eq!(reporter.poll(now, 0), None, "one at a time");
    reporter.done(now, Outcome::Done);
    let (_, job) = next(&mut reporter);
    let key = "/calico/felix/v2/no-region/host/n1/last_reported_status".to_owned();
    assert_eq!(
        job,
        Job::Put {
            key,
            value: value.to_vec(),
            ttl: None
        }
    );
    reporter.done(now, Outcome::Done);
    let (now, job) = next(&mut reporter);
    assert_eq!(now, at(40_000));
    let Job::Put { value, .. } = job else {
        panic!("{job:?}")
    };
    assert!(
        String::from_utf8(value)
            .unwrap()
            .contains(r#""first_update":false"#)
    );
}

#[test]
fn first_update_stays_true_until_a_write_went_through() {
    let mut reporter = reporter(false);
    for _ in 0..3 {
        let (now, job) = next(&mut reporter);
        let Job::Put { value, .. } = job else {
            panic!("{job:?}")
        };
        assert!(
            String::from_utf8(value)
                .unwrap()
                .contains(r#""first_update":true"#)
        );
        reporter.done(now, Outcome::Failed);
    }
}

#[test]
fn reporting_interval_zero_reports_nothing() {
    let mut reporter = reporter(false);
    reporter.settings(&Settings {
        reporting_interval: Duration::ZERO,
        ..Settings::default()
    });
    assert_eq!(reporter.poll_timeout(), None);
    assert_eq!(reporter.poll(at(100_000), 0), None);
}

fn without_own() -> Reporter {
    let mut reporter = reporter(true);
    reporter.settings(&Settings {
        endpoint_reporting: true,
        reporting_interval: Duration::ZERO,
        ..Settings::default()
    });
    reporter
}

#[test]
fn nothing_is_listed_or_removed_before_the_host_is_in_step() {
    let mut reporter = without_own();
    assert_eq!(reporter.poll(at(60_000), 0), None);
    state(&mut reporter, EndpointState::Up);
    assert!(matches!(
        reporter.poll(at(60_000), 0),
        Some(Job::List { .. })
    ));
}

#[test]
fn strays_go_and_wrong_values_are_put_right() {
    let mut reporter = without_own();
    state(&mut reporter, EndpointState::Up);
    let (now, job) = next(&mut reporter);
    let prefix = "/calico/felix/v2/no-region/host/n1/workload/".to_owned();
    assert_eq!(
        job,
        Job::List {
            prefix: prefix.clone()
        }
    );
    let stray = format!("{prefix}k8s/ns%2fold/endpoint/eth0");
    reporter.done(
        now,
        Outcome::Listed(vec![
            (ENDPOINT.into(), b"?".to_vec()),
            (stray.clone(), br#"{"status":"up"}"#.to_vec()),
        ]),
    );
    let (now, job) = next(&mut reporter);
    assert_eq!(job, Job::Delete { key: stray });
    reporter.done(now, Outcome::Done);
    let (now, job) = next(&mut reporter);
    let up = Job::Put {
        key: ENDPOINT.into(),
        value: br#"{"status":"up"}"#.to_vec(),
        ttl: None,
    };
    assert_eq!(job, up);
    reporter.done(now, Outcome::Done);
    assert_eq!(reporter.poll(now + Duration::from_secs(2), 0), None);
}

#[test]
fn flapping_costs_one_write_a_tick() {
    let mut reporter = without_own();
    state(&mut reporter, EndpointState::Up);
    let (now, _) = next(&mut reporter);
    reporter.done(now, Outcome::Listed(Vec::new()));
    let mut writes = 0;
    for ms in 1..=10_000 {
        let flap = [EndpointState::Up, EndpointState::Down][ms % 2];
        state(&mut reporter, flap);
        if reporter
            .poll(now + Duration::from_millis(ms as u64), 0)
            .is_some()
        {
            writes += 1;
            reporter.done(now + Duration::from_millis(ms as u64), Outcome::Done);
        }
    }
    assert!((5..=12).contains(&writes), "{writes} writes in ten ticks");
}

#[test]
fn a_key_goes_with_its_endpoint() {
    let mut reporter = without_own();
    state(&mut reporter, EndpointState::Down);
    let (now, _) = next(&mut reporter);
    reporter.done(
        now,
        Outcome::Listed(vec![(ENDPOINT.into(), br#"{"status":"down"}"#.to_vec())]),
    );
    reporter.endpoints(std::iter::empty());
    let (_, job) = next(&mut reporter);
    assert_eq!(
        job,
        Job::Delete {
            key: ENDPOINT.into()
        }
    );
}

#[test]
fn a_failed_write_is_tried_again_after_a_look() {
    let mut reporter = without_own();
    state(&mut reporter, EndpointState::Up);
    let (now, _) = next(&mut reporter);
    reporter.done(now, Outcome::Listed(Vec::new()));
    let (now, _) = next(&mut reporter);
    reporter.done(now, Outcome::Failed);
    assert!(reporter.poll_timeout().unwrap() > now);
    assert!(matches!(next(&mut reporter), (_, Job::List { .. })));
}

#[test]
fn the_store_is_looked_through_now_and_then() {
    let mut reporter = without_own();
    state(&mut reporter, EndpointState::Up);
    let (now, _) = next(&mut reporter);
    let found = vec![(ENDPOINT.to_owned(), br#"{"status":"up"}"#.to_vec())];
    reporter.done(now, Outcome::Listed(found));
    let (later, job) = next(&mut reporter);
    assert!(matches!(job, Job::List { .. }));
    let ticks = Duration::from_secs(u64::from(STATUS_RESYNC_TICKS));
    assert!(later.since(now) > ticks * 8 / 10 && later.since(now) < ticks * 12 / 10);
}
