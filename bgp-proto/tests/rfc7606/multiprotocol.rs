//! MP_REACH_NLRI and MP_UNREACH_NLRI: next hops by family, and unusable ones.

use super::*;

fn mp_reach(family: Family, next_hop: &[u8], nlri: &[u8]) -> Vec<u8> {
    let mut value = family.afi.to_be_bytes().to_vec();
    value.extend([family.safi, u8::try_from(next_hop.len()).unwrap()]);
    value.extend(next_hop);
    value.push(0);
    value.extend(nlri);
    [&[0x80, 14, u8::try_from(value.len()).unwrap()][..], &value].concat()
}

const GLOBAL: [u8; 16] = [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const LOCAL: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const LOOPBACK: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const MAPPED: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1];
const RD: [u8; 8] = [0; 8];

/// The result of a next hop in MP_REACH_NLRI.
fn mp_next_hop(
    family: Family,
    next_hop: &[u8],
    params: &SessionParams,
) -> Result<NextHop, FaultKind> {
    let nlri: &[u8] = match family {
        Family::IPV4_VPN | Family::IPV6_VPN => &[88, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0],
        _ => &[0],
    };
    let reach = mp_reach(family, next_hop, nlri);
    let body = body(&[], &[ORIGIN, AS_PATH, &reach], &[]);
    match faults(&body, params)[..] {
        [] => Ok(set(&body, params).next_hop.unwrap()),
        [fault] => Err(fault.kind),
        _ => panic!("one fault at most"),
    }
}

#[test]
fn next_hops_by_family() {
    let plain = session(External);
    let v4 = NextHop::V4([10, 0, 0, 1].into());
    let v6 = NextHop::v6(GLOBAL.into());
    let pair = NextHop::V6 {
        global: GLOBAL.into(),
        link_local: Some(LOCAL.into()),
    };
    let four: &[u8] = &[10, 0, 0, 1];

    let six = Family::IPV6_UNICAST;
    assert_eq!(mp_next_hop(six, &GLOBAL, &plain), Ok(v6.clone()));
    assert_eq!(
        mp_next_hop(six, &[GLOBAL, LOCAL].concat(), &plain),
        Ok(pair.clone())
    );
    assert_eq!(
        mp_next_hop(six, &[GLOBAL, [0; 16]].concat(), &plain),
        Ok(v6.clone())
    );
    let only_local = NextHop::V6 {
        global: [0; 16].into(),
        link_local: Some(LOCAL.into()),
    };
    assert_eq!(
        mp_next_hop(six, &[[0; 16], LOCAL].concat(), &plain),
        Ok(only_local.clone())
    );
    assert_eq!(
        only_local.address(),
        Some(std::net::IpAddr::V6(LOCAL.into()))
    );
    assert!(mp_next_hop(six, &LOCAL, &plain).is_ok());
    assert!(mp_next_hop(six, &[LOCAL, LOCAL].concat(), &plain).is_ok());
    for bad in [[0; 16], LOOPBACK, MAPPED, [0xff; 16]] {
        assert_eq!(mp_next_hop(six, &bad, &plain), Err(K::NextHop), "{bad:?}");
    }
    assert_eq!(
        mp_next_hop(six, &[GLOBAL, GLOBAL].concat(), &plain),
        Err(K::NextHop)
    );
    assert_eq!(mp_next_hop(six, four, &plain), Err(K::MpNextHopLength));
    let mapped = SessionParams {
        v4_mapped_next_hop: true,
        ..plain.clone()
    };
    assert_eq!(
        mp_next_hop(six, &MAPPED, &mapped),
        Ok(NextHop::v6(MAPPED.into()))
    );

    // RFC 8950: only if negotiated.
    let extended = SessionParams {
        extended_next_hop: true,
        ..plain.clone()
    };
    assert_eq!(
        mp_next_hop(Family::IPV4_UNICAST, four, &plain),
        Ok(v4.clone())
    );
    assert_eq!(
        mp_next_hop(Family::IPV4_UNICAST, &GLOBAL, &plain),
        Err(K::MpNextHopLength)
    );
    assert_eq!(
        mp_next_hop(Family::IPV4_UNICAST, &GLOBAL, &extended),
        Ok(v6.clone())
    );

    assert_eq!(
        mp_next_hop(Family::IPV4_VPN, &[&RD, four].concat(), &plain),
        Ok(v4.clone())
    );
    assert_eq!(
        mp_next_hop(Family::IPV6_VPN, &[&RD[..], &GLOBAL].concat(), &plain),
        Ok(v6)
    );
    let both = [&RD[..], &GLOBAL, &RD, &LOCAL].concat();
    assert_eq!(mp_next_hop(Family::IPV6_VPN, &both, &plain), Ok(pair));
    assert_eq!(
        mp_next_hop(Family::IPV4_VPN, four, &plain),
        Err(K::OpaqueNextHopLength)
    );
    assert_eq!(mp_next_hop(Family::ROUTE_TARGET, four, &plain), Ok(v4));
    assert_eq!(
        Fault::new(K::NextHop, AttrCode::MpReach, 4).remedy(),
        TreatAsWithdraw
    );
}

#[test]
fn next_hop_beside_mp_reach_is_ignored() {
    let reach = mp_reach(Family::IPV6_UNICAST, &GLOBAL, &[0]);
    let zero: &[u8] = &[0x40, 3, 4, 0, 0, 0, 0];
    let body = body(&[], &[ORIGIN, AS_PATH, zero, &reach], &[]);
    assert_eq!(faults(&body, &session(External)), []);
    assert_eq!(
        set(&body, &session(External)).next_hop,
        Some(NextHop::v6(GLOBAL.into()))
    );
}

#[test]
fn multiprotocol_attributes_that_cannot_be_used() {
    let params = SessionParams {
        families: FamilySet::UNICAST,
        ..session(External)
    };
    let view = |attributes: &[&[u8]]| {
        let body = body(&[], attributes, &[]);
        let (view, faults) = UpdateView::parse(&body, &params).unwrap();
        let batches = view
            .batches()
            .map(|batch| (batch.family, batch.attrs.is_some()))
            .collect();
        (
            faults.iter().map(|fault| fault.kind).collect::<Vec<_>>(),
            batches,
        )
    };
    let six = mp_reach(Family::IPV6_UNICAST, &GLOBAL, &[0]);
    let (ok, none): (Vec<_>, Vec<_>) = (vec![(Family::IPV6_UNICAST, true)], vec![]);
    assert_eq!(view(&[ORIGIN, AS_PATH, &six]), (vec![], ok.clone()));
    let vpn = mp_reach(Family::IPV4_VPN, &[0; 12], &[]);
    assert_eq!(
        view(&[ORIGIN, AS_PATH, &vpn]),
        (vec![K::FamilyNotNegotiated], none.clone())
    );
    let unknown_family = mp_reach(Family::new(16_388, 71), &[], &[1, 2, 3]);
    assert_eq!(
        view(&[&unknown_family]),
        (vec![K::FamilyNotNegotiated], none.clone())
    );
    assert_eq!(
        view(&[&[0x80, 14, 3, 0, 2, 1]]),
        (vec![K::MpSyntax], none.clone())
    );
    assert_eq!(view(&[&[0x80, 15, 2, 0, 2]]), (vec![K::MpSyntax], none));
    let withdrawn = vec![(Family::IPV6_UNICAST, false)];
    let twice = view(&[ORIGIN, AS_PATH, &six, &six]);
    assert_eq!(twice, (vec![K::MpDuplicate], withdrawn.clone()));
    let mut flags = six.clone();
    flags[0] = 0xc0;
    assert_eq!(
        view(&[ORIGIN, AS_PATH, &flags]),
        (vec![K::Flags], withdrawn)
    );
    for kind in [K::MpDuplicate, K::MpSyntax, K::MpNextHopLength] {
        assert_eq!(
            Fault::new(kind, AttrCode::MpReach, 0).remedy(),
            ResetSession
        );
    }
}
