use super::*;

const OFFER: Offer = Offer {
    asn: 64512,
    id: Ipv4Addr::new(10, 0, 0, 1),
    hold_time_s: 90,
    ipv6: true,
    add_path: true,
};

#[test]
fn add_path_is_found_in_an_open() {
    let both = AddPath {
        receives: true,
        sends: true,
    };
    let found = |offer: &Offer| AddPath::of(&offer.open());
    assert_eq!(found(&OFFER), both);
    let without = Offer {
        add_path: false,
        ..OFFER
    };
    assert_eq!(found(&without), AddPath::default());
}

#[test]
fn written_update_is_read() {
    let attributes = Attributes {
        path: vec![65_001, 4_200_000_000],
        next_hop: [10, 64, 16, 0],
        local_pref: Some(100),
        communities: vec![7],
    };
    let v4: Vec<_> = (0..3000).map(|n| Prefix::V4(n << 12, 24)).collect();
    let v6: Vec<_> = (0..3000).map(|n| Prefix::V6(n << 9)).collect();
    for (prefixes, path_id) in [(&v4, None), (&v4, Some(9)), (&v6, None), (&v6, Some(9))] {
        let octets = announce(&attributes, prefixes, path_id);
        assert_eq!(&read(&octets, path_id.is_some()).0, prefixes);
        let octets = withdraw(prefixes, path_id);
        assert_eq!(&read(&octets, path_id.is_some()).1, prefixes);
    }
}

fn read(mut octets: &[u8], path_ids: bool) -> (Vec<Prefix>, Vec<Prefix>) {
    let (mut announced, mut withdrawn) = (vec![], vec![]);
    while let Some(length) = testkit::message_octets(octets).expect("a header") {
        assert_eq!(octets[18], UPDATE);
        let update = Update::parse(&octets[HEADER_OCTETS..length]).expect("an UPDATE");
        let received = Received::parse(update.attributes).expect("attributes");
        for (v4, v6, list) in [
            (update.announced, received.announced_v6, &mut announced),
            (update.withdrawn, received.withdrawn_v6, &mut withdrawn),
        ] {
            let four = prefixes_v4(v4, path_ids, |address, length| {
                list.push(Prefix::V4(address, length));
                Ok(())
            });
            let six = prefixes_v6(v6, path_ids, |half| {
                list.push(Prefix::V6(half));
                Ok(())
            });
            four.and(six).expect("prefixes");
        }
        octets = &octets[length..];
    }
    (announced, withdrawn)
}

#[test]
fn malformed_updates_are_refused() {
    assert!(Update::parse(&[0, 9, 0]).is_err());
    assert!(Received::parse(&[0x40, 1, 2, 0]).is_err());
    assert!(Received::parse(&[0x40, 1, 1, 0, 0x40, 1, 1, 0]).is_err());
    assert!(prefixes_v4(&[33, 1, 2, 3, 4, 5], false, |_, _| Ok(())).is_err());
}
