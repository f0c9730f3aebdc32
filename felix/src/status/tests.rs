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
    reporter.settings(
        at(0),
        &Settings {
            endpoint_reporting,
            ..Settings::default()
        },
    );
    reporter
}

fn state(reporter: &mut Reporter, state: EndpointState) {
    reporter.endpoints([(&id(), Some(state.into()))]);
}

/// Returns the next job, at the time it becomes due.
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
    reporter.settings(
        at(0),
        &Settings {
            reporting_interval: Duration::ZERO,
            ..Settings::default()
        },
    );
    assert_eq!(reporter.poll_timeout(), None);
    assert_eq!(reporter.poll(at(100_000), 0), None);
}

fn without_own() -> Reporter {
    let mut reporter = reporter(true);
    reporter.settings(
        at(0),
        &Settings {
            endpoint_reporting: true,
            reporting_interval: Duration::ZERO,
            ..Settings::default()
        },
    );
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
fn status_key_is_deleted_with_its_endpoint() {
    let mut reporter = without_own();
    state(&mut reporter, EndpointState::Down);
    let (now, _) = next(&mut reporter);
    reporter.done(
        now,
        Outcome::Listed(vec![(ENDPOINT.into(), br#"{"status":"down"}"#.to_vec())]),
    );
    reporter.endpoints([(&id(), None)]);
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
    assert!(
        later.saturating_duration_since(now) > ticks * 8 / 10
            && later.saturating_duration_since(now) < ticks * 12 / 10
    );
}

#[test]
fn nothing_is_reported_before_settings_are_read() {
    let mut reporter = Reporter::new(at(0), "n1", 7);
    assert_eq!(reporter.poll_timeout(), None);
    assert_eq!(reporter.poll(at(60_000), 0), None);
    reporter.settings(at(60_000), &Settings::default());
    let job = reporter.poll(at(60_000), 0);
    assert!(
        matches!(job, Some(Job::Put { ttl: Some(_), .. })),
        "{job:?}"
    );
}

#[test]
fn settings_of_its_own_reports_are_taken_over_at_once() {
    let mut reporter = reporter(false);
    let (now, _) = next(&mut reporter);
    reporter.done(now, Outcome::Done);
    let (now, _) = next(&mut reporter);
    reporter.done(now, Outcome::Done);
    assert_eq!(reporter.poll_timeout(), Some(now + Duration::from_secs(30)));
    let settings = Settings {
        reporting_interval: Duration::from_secs(5),
        reporting_ttl: Duration::from_secs(15),
        ..Settings::default()
    };
    reporter.settings(now, &settings);
    let (then, job) = next(&mut reporter);
    assert_eq!(then, now + Duration::from_secs(5));
    let Job::Put { ttl, .. } = job else {
        panic!("{job:?}")
    };
    assert_eq!(ttl, Some(Duration::from_secs(15)));
}

#[test]
fn an_error_has_its_reason_beside_it() {
    let mut reporter = without_own();
    let status = |reason: &str| EndpointStatus {
        status: EndpointState::Error,
        reason: Some(reason.into()),
    };
    reporter.endpoints([(&id(), Some(status("taken")))]);
    let (now, _) = next(&mut reporter);
    let found = (ENDPOINT.into(), br#"{"status":"error"}"#.to_vec());
    reporter.done(now, Outcome::Listed(vec![found]));
    for reason in ["taken", "refused"] {
        reporter.endpoints([(&id(), Some(status(reason)))]);
        let (now, job) = next(&mut reporter);
        let put = Job::Put {
            key: ENDPOINT.into(),
            value: format!(r#"{{"status":"error","reason":"{reason}"}}"#).into(),
            ttl: None,
        };
        assert_eq!(job, put);
        reporter.done(now, Outcome::Done);
        assert_eq!(reporter.poll(now + Duration::from_secs(2), 0), None);
    }
}

#[test]
fn flapping_endpoint_delays_no_other_report() {
    let mut reporter = without_own();
    let ids: Vec<EndpointId> = (0..5)
        .map(|n| EndpointId {
            endpoint: format!("eth{n}"),
            ..id()
        })
        .collect();
    let report = |reporter: &mut Reporter, flap: EndpointState| {
        let state = |id: &EndpointId| match id.endpoint.as_str() {
            "eth0" => flap.into(),
            _ => EndpointState::Up.into(),
        };
        reporter.endpoints(ids.iter().map(|id| (id, Some(state(id)))));
    };
    report(&mut reporter, EndpointState::Up);
    let (now, _) = next(&mut reporter);
    reporter.done(now, Outcome::Listed(Vec::new()));
    let mut written = BTreeSet::new();
    for n in 0..6 {
        report(
            &mut reporter,
            [EndpointState::Up, EndpointState::Down][n % 2],
        );
        let (now, job) = next(&mut reporter);
        let Job::Put { key, .. } = job else {
            panic!("{job:?}")
        };
        written.insert(key);
        reporter.done(now, Outcome::Done);
    }
    assert_eq!(written.len(), 5, "{written:?}");
}

#[test]
fn endpoint_known_to_an_earlier_run_is_reported_once() {
    let mut reporter = without_own();
    state(&mut reporter, EndpointState::Down);
    assert!(reporter.take_known().is_empty());
    let (now, _) = next(&mut reporter);
    let failed = ENDPOINT.replace("eth0", "eth1");
    let found = [
        (ENDPOINT, r#"{"status":"down"}"#),
        (&failed, r#"{"status":"error"}"#),
        ("/calico/felix/v2/no-region/host/n1/workload/x", "{}"),
    ];
    let found = found.map(|(key, value)| (key.to_owned(), value.into()));
    reporter.done(now, Outcome::Listed(found.into()));
    assert_eq!(reporter.take_known(), [id()]);
    assert!(reporter.take_known().is_empty());
}
