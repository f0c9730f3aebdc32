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
    let said = registration("draining", 100);
    fleet.registered.insert("rr1".to_owned(), said);
    let id = "0.0.0.7".parse().expect("an id");
    fleet.claims.insert("rr2".to_owned(), [id].into());
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
