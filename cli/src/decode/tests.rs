use serde_json::{Value, json};

use super::output::Output;
use super::{hex, mrt_file, pcap_file};

/// The printed objects of a text file.
fn decode(text: &str) -> Vec<Value> {
    let mut out = Output(Vec::new());
    hex::lines(text.as_bytes(), &mut out).unwrap();
    objects(out)
}

fn objects(out: Output<Vec<u8>>) -> Vec<Value> {
    let text = String::from_utf8(out.0).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

const MARKER: &str = "ffffffffffffffffffffffffffffffff";

/// A message of this type and body.
fn message(kind: u8, body: &str) -> String {
    format!("{MARKER}{:04x}{kind:02x}{body}", 19 + body.len() / 2)
}

#[test]
fn update_is_decoded_with_routes_and_attributes() {
    let attributes =
        "40010100 40020a0202 0000fc00fa56ea00 4003040a000001 c00804fc000064 c06302abcd";
    let attributes = attributes.replace(' ', "");
    let body = format!("0002080b{:04x}{attributes}180a0102", attributes.len() / 2);
    let lines = decode(&format!(
        "# comment\n\nsrc=here as4=1 {}\n",
        message(2, &body)
    ));
    assert_eq!(
        lines,
        [json!({
            "message": 1, "line": 3, "fields": {"src": "here"}, "type": "UPDATE",
            "reach": [{
                "family": "ipv4-unicast", "next_hop": "10.0.0.1",
                "nlri": [{"prefix": "10.1.2.0/24"}],
            }],
            "unreach": [{"family": "ipv4-unicast", "nlri": [{"prefix": "11.0.0.0/8"}]}],
            "attributes": {
                "ORIGIN": "IGP", "AS_PATH": "64512 4200000000", "NEXT_HOP": "10.0.0.1",
                "COMMUNITIES": ["64512:100"],
                "unknown": [{"code": 99, "flags": "0xc0", "value": "abcd"}],
            },
        })]
    );
}

#[test]
fn path_identifiers_are_read_if_ap_is_set() {
    let body = "00060000002a080b0000";
    let lines = decode(&format!("ap=1 {}", message(2, body)));
    let nlri = &lines[0]["unreach"][0]["nlri"];
    assert_eq!(*nlri, json!([{"prefix": "11.0.0.0/8", "path_id": 42}]));
}

#[test]
fn malformed_messages_are_reported_and_do_not_stop_it() {
    let bad_origin =
        message(2, "000000124001010940020602010000fc004003040a0000010808").replace("0012", "0014");
    let text = [
        bad_origin,
        message(4, ""),
        MARKER.into(),
        "zz".into(),
        message(9, ""),
    ]
    .join("\n");
    let lines = decode(&text);
    assert_eq!(
        lines[0]["faults"],
        json!([{
            "at": 23, "attribute": "ORIGIN", "fault": "value", "text": "bad attribute value",
            "remedy": "treat-as-withdraw",
        }])
    );
    assert_eq!(lines[0]["attributes"]["ORIGIN"], Value::Null);
    assert_eq!(lines[1]["type"], "KEEPALIVE");
    assert_eq!(
        lines[2]["faults"],
        json!([{"at": 16, "fault": "cut", "text": "message cut off", "remedy": "session reset"}])
    );
    assert_eq!(lines[3]["error"], "not a hex digit at column 1: 'z'");
    let last = &lines[4];
    assert_eq!(
        (&last["type"], &last["faults"][0]["at"]),
        (&json!("MALFORMED"), &json!(18))
    );
    assert_eq!(
        last["faults"][0]["text"],
        "Message Header Error/Bad Message Type"
    );
}

#[test]
fn a_family_without_a_row_is_shown_as_octets() {
    let lines = decode(&message(
        2,
        "0000 0008 800f05 4004 47 0102".replace(' ', "").as_str(),
    ));
    assert_eq!(
        lines[0]["attributes"]["unknown"],
        json!([{
            "code": 15, "name": "MP_UNREACH_NLRI", "flags": "0x80", "value": "4004470102",
        }])
    );
    assert_eq!(lines[0]["faults"][0]["fault"], "family-not-negotiated");
}

#[test]
fn capabilities_and_reasons_are_printed() {
    let open = message(
        1,
        "04fc00005a0a00000110020e 010400010001 4104fa56ea00 c800"
            .replace(' ', "")
            .as_str(),
    );
    let notification = message(3, "0602056d61696e74");
    let lines = decode(&format!("{open}{notification}"));
    assert_eq!(lines.len(), 2, "two messages in a line");
    assert_eq!(
        lines[0]["capabilities"],
        json!([
            {
                "code": 1, "name": "multiprotocol", "text": "multiprotocol ipv4-unicast",
                "value": "00010001",
            },
            {
                "code": 65, "name": "four-octet-asn", "text": "four-octet-asn 4200000000",
                "value": "fa56ea00",
            },
            {"code": 200, "text": "unknown (code 200, )", "value": ""},
        ])
    );
    assert_eq!(lines[1]["text"], "Cease/Administrative Shutdown: maint");
}

#[test]
fn invalid_field_is_reported() {
    let lines = decode("as4=2 00");
    assert_eq!(lines[0]["error"], "as4=2: write as4=0 or as4=1");
}

/// Octets of RFC 6396 appendix B.2.1: time, type 5 with its subtype, length; then AS number and
/// address of the peer, in messages also the local ones, and no header of a message.
#[test]
fn mrt_records_of_the_retired_type_are_printed() {
    let update = "00000007 0005 0001 00000012 fde9 c0000201 fdea c0000202 0002080a0000";
    let change = "00000008 0005 0003 0000000a fde9 c0000201 0005 0006";
    let sync = "00000009 0005 0004 00000004 0001 6100";
    let octets = super::octets::from_hex(&[update, change, sync].concat()).unwrap();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, &octets).unwrap();
    let mut out = Output(Vec::new());
    mrt_file::run(file.path(), &mut out).unwrap();
    let peer = json!({"address": "192.0.2.1", "asn": 65001});
    let local = json!({"address": "192.0.2.2", "asn": 65002});
    assert_eq!(
        objects(out),
        [
            json!({
                "message": 1, "offset": 0, "time": 7, "peer": peer, "local": local,
                "type": "UPDATE",
                "unreach": [{"family": "ipv4-unicast", "nlri": [{"prefix": "10.0.0.0/8"}]}],
            }),
            json!({
                "message": 2, "offset": 30, "time": 8, "peer": peer, "type": "STATE-CHANGE",
                "old": "OpenConfirm", "new": "Established",
            }),
            json!({
                "message": 3, "offset": 52, "time": 9, "type": "RECORD", "kind": 5, "subtype": 4,
            }),
        ]
    );
}

/// The capture lacks 2 octets between the two packets, and is cut.
#[test]
fn loss_and_end_of_a_capture_are_printed() {
    let ip = "45000000 0000 4000 40 06 0000 c0000201 c0000202 00b3 9c40";
    let keepalive = message(4, "");
    let header = "d4c3b2a1 0200 0400 00000000 00000000 00000400 65000000";
    let first = format!(
        "07000000 09000000 3b000000 3b000000 {ip} 00000064 00000000 5018000000000000 {keepalive}"
    );
    let second = first.replace("00000064", "00000079");
    let octets = super::octets::from_hex(&[header, &first, &second, "0700"].concat()).unwrap();
    let mut out = Output(Vec::new());
    pcap_file::packets(&octets[..], 179, &mut out).unwrap();
    let ends = json!({
        "from": {"address": "192.0.2.1", "port": 179},
        "to": {"address": "192.0.2.2", "port": 40000},
    });
    let with_ends = |mut object: Value| {
        let fields = ends.as_object().unwrap().clone();
        object.as_object_mut().unwrap().extend(fields);
        object
    };
    let error = "file truncated within the record at octet 174";
    assert_eq!(
        objects(out),
        [
            with_ends(json!({
                "message": 1, "offset": 24, "time": 7, "microseconds": 9, "type": "KEEPALIVE",
            })),
            with_ends(json!({"message": 2, "type": "LOST", "octets": 2})),
            with_ends(json!({"message": 3, "type": "KEEPALIVE"})),
            json!({"message": 4, "offset": 174, "type": "ERROR", "error": error}),
        ]
    );
}
