//! Requests of an operator to the running program.

use super::*;

/// RFC 7606: a malformed message of a client of another implementation, reported octet by octet.
#[tokio::test]
async fn a_malformed_message_is_kept_and_shown() {
    use std::io::{Read, Write};
    let reflector = Reflector::start().await;
    let mut socket = std::net::TcpStream::connect(reflector.address().await).expect("connected");
    // OPEN: version 4, AS 64512, 90 s, 127.0.0.9, the capability of four-octet AS numbers.
    let open = "04 fc00 005a 7f000009 08 0206 4104 0000fc00";
    // ORIGIN is 9; AS_PATH, NEXT_HOP, LOCAL_PREF and one prefix are valid.
    let update = "0000 0015 40010109 400200 4003040a000002 40050400000064 200a410005";
    for (kind, text) in [("01", open), ("04", ""), ("02", update)] {
        let body = octets(&format!("{kind}{text}"));
        let length = u16::try_from(18 + body.len()).expect("short");
        let message = [&[0xff; 16][..], &length.to_be_bytes(), &body].concat();
        socket.write_all(&message).expect("written");
    }
    let messages = async {
        loop {
            match reflector.call(Command::Malformed {}).await {
                Ok(Reply::Malformed(kept)) if !kept.messages.is_empty() => return kept.messages,
                _ => tokio::task::yield_now().await,
            }
        }
    };
    let kept = timeout(DEADLINE, messages).await.expect("it is kept");
    assert_eq!((kept.len(), kept[0].at), (1, 4), "{kept:?}");
    assert_eq!(kept[0].neighbor, "127.0.0.0/24-127.0.0.1");
    assert_eq!(octets(&kept[0].octets), octets(update));
    assert_eq!(kept[0].remedy, "treat-as-withdraw");
    let now = std::time::SystemTime::now();
    let now = now.duration_since(std::time::UNIX_EPOCH).expect("later");
    let (now_s, at_s) = (now.as_secs(), kept[0].time_s);
    assert!(now_s.abs_diff(at_s) <= DEADLINE.as_secs(), "{at_s}");
    let up = &reflector.neighbors().await.neighbors[0];
    assert_eq!((up.state.as_str(), up.faults), ("Established", 1));
    // The reflector has answered earlier: its OPEN is already in the socket.
    let mut answer = [0; 19];
    socket.read_exact(&mut answer).expect("an answer");
    assert_eq!(answer[18], 1);
}

/// Decodes hexadecimal digits.
fn octets(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    let pairs = digits.chunks(2).map(|pair| pair.iter().collect::<String>());
    pairs
        .map(|pair| u8::from_str_radix(&pair, 16).expect("hex"))
        .collect()
}

/// RFC 2918: the client gets a ROUTE-REFRESH, and sends its routes again.
#[tokio::test]
async fn an_operator_asks_for_routes_again() {
    let reflector = Reflector::start().await;
    let address = reflector.address().await;
    let (mut one, mut two) = (client(2, address), client(3, address));
    up(&mut [&mut one, &mut two]).await;
    let received = |one: &Io| {
        let peer = one.speaker().peers().next().expect("one peer");
        peer.session.stats().received.route_refresh
    };
    assert_eq!(received(&one), 0);
    let ask = Command::Refresh {
        neighbor: "127.0.0.2".to_owned(),
        family: Some("ipv4-unicast".to_owned()),
    };
    match reflector.call(ask).await {
        Ok(Reply::Refresh(done)) => assert_eq!(done.families, ["ipv4-unicast"]),
        other => panic!("{other:?}"),
    }
    let asked = async {
        while received(&one) == 0 {
            one.next().await;
        }
    };
    timeout(DEADLINE, asked).await.expect("the client is asked");
    let refused = async |neighbor: &str, family: &str| {
        let ask = Command::Refresh {
            neighbor: neighbor.to_owned(),
            family: Some(family.to_owned()),
        };
        let refused = reflector.call(ask).await.expect_err("refused");
        refused.to_string()
    };
    assert_eq!(refused("ghost", "ipv4-unicast").await, "no neighbor ghost");
    let unknown = refused("127.0.0.2", "ipv5").await;
    assert!(unknown.contains("'ipv5'"), "{unknown}");
    let other = refused("127.0.0.2", "ipv4-vpn").await;
    assert!(other.contains("does not carry this family"), "{other}");
}

/// RFC 4486.
#[tokio::test]
async fn cleared_session_is_established_again() {
    let reflector = Reflector::start().await;
    let mut one = client(2, reflector.address().await);
    up(&mut [&mut one]).await;
    let clear = Command::Clear {
        neighbor: "127.0.0.2".to_owned(),
    };
    assert!(matches!(reflector.call(clear).await, Ok(Reply::Clear(_))));
    let why = drive(&mut [&mut one], "it is reported", |event| match event {
        Event::Speaker(SpeakerEvent::Down { reason, .. }) => Some(reason.to_string()),
        _ => None,
    })
    .await;
    assert!(why.contains("cleared by the operator"), "{why}");
    up(&mut [&mut one]).await;
    let limits = match reflector.call(Command::Limits {}).await {
        Ok(Reply::Limits(limits)) => limits.limits,
        other => panic!("{other:?}"),
    };
    let settings = match reflector.call(Command::Config {}).await {
        Ok(Reply::Config(settings)) => settings,
        other => panic!("{other:?}"),
    };
    assert!(settings.from.ends_with(".toml"), "{}", settings.from);
    assert_eq!(settings.ranges[0].from, "the file");
    let client = |key: &daemon_common::report::Fact| {
        (&*key.name, &*key.value) == ("route_reflector_client", "true")
    };
    assert!(settings.ranges[0].keys.iter().any(client), "{settings:?}");
    let range = limits.iter().find(|limit| limit.of.is_some());
    let range = range.expect("that of the range");
    assert_eq!((range.limit, range.used, range.peak), (2, Some(1), Some(1)));
    let files = limits.iter().find(|limit| limit.name == "open files");
    let files = files.expect("those of the process");
    assert!(files.used.expect("counted") > 3 && files.limit > 3);
}

/// Returns the limit of all accounts, as the reflector reports it.
async fn memory_max(reflector: &Reflector) -> Option<u64> {
    let limits = match reflector.call(Command::Limits {}).await {
        Ok(Reply::Limits(limits)) => limits.limits,
        other => panic!("{other:?}"),
    };
    let key = |limit: &daemon_common::report::Limit| limit.key.as_deref() == Some("memory_max");
    limits.into_iter().find(key).map(|limit| limit.limit)
}

#[tokio::test]
async fn reload_applies_memory_max() {
    let reflector = Reflector::start().await;
    let text = std::fs::read_to_string(reflector.config()).expect("its file");
    for (key, expected) in [
        ("memory_max = \"64M\"", Some(64 << 20)),
        ("memory_max = \"none\"", None),
        ("memory_max = 1048576", Some(1 << 20)),
    ] {
        std::fs::write(reflector.config(), format!("{key}\n{text}")).expect("written");
        reflector.signal(nix::sys::signal::Signal::SIGHUP);
        let applied = async {
            while memory_max(&reflector).await != expected {
                tokio::task::yield_now().await;
            }
        };
        timeout(DEADLINE, applied).await.expect(key);
    }
    let settings = match reflector.call(Command::Config {}).await {
        Ok(Reply::Config(settings)) => settings.keys,
        other => panic!("{other:?}"),
    };
    let key = settings.iter().find(|key| key.name == "memory_max");
    assert_eq!(key.map(|key| &*key.value), Some("1048576"));
}
